#include "server/summary.h"

#include <gtest/gtest.h>

#include <string>

#include "base/clock.h"
#include "server/load_progress.h"

namespace pagoda {
namespace {

Summary demo() {
  Summary summary;
  summary.served_name = "demo";
  summary.config.architecture = "llama";
  summary.config.n_layers = 30;
  summary.config.n_heads = 9;
  summary.config.n_kv_heads = 3;
  summary.config.context_len = 8192;
  summary.facts.n_parameters = 134'515'008;
  summary.facts.tensor_bytes = 92 << 20;
  summary.facts.types = {{.type = DType::kQ4_1}, {.type = DType::kF32}};
  summary.device = "cpu";
  summary.kernel_set = "avx2";
  summary.n_threads = 2;
  summary.weight_bytes = 92 << 20;
  summary.block_bytes = 360 << 10;
  summary.pool_bytes = int64_t{1100} * (360 << 10);
  summary.max_model_len = 8192;
  summary.max_num_seqs = 64;
  summary.max_queue = 256;
  summary.host = "127.0.0.1";
  summary.port = 8000;
  return summary;
}

TEST(Summary, SaysWhatFits) {
  const std::string text = summary_block(demo());
  EXPECT_NE(text.find("  KV room    17600 tokens: 34 users of 512 tokens, 8 of 2048, 2 of 8192\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("weights 92.0 MiB, KV pool 386.7 MiB (22.5 KiB a token)"), std::string::npos);
  EXPECT_NE(text.find("demo, 134.5 M parameters"), std::string::npos);
  EXPECT_NE(text.find("92.0 MiB, mostly Q4_1"), std::string::npos);
  EXPECT_NE(text.find("curl http://127.0.0.1:8000/v1/chat/completions "), std::string::npos);
  EXPECT_EQ(text.find("context    "), std::string::npos);
}

TEST(Summary, ShortContextsAndOddHosts) {
  Summary summary = demo();
  summary.max_model_len = 512;
  summary.context_note = "lowered from 8192 to what the KV pool holds";
  summary.pool_bytes = int64_t{32} * (360 << 10);
  summary.host = "::1";
  summary.prefix_caching = false;
  summary.config.name = "Evil\x1b[2J";
  const std::string text = summary_block(summary);
  EXPECT_NE(text.find("512 tokens: 1 user of 512 tokens\n"), std::string::npos) << text;
  EXPECT_NE(text.find("512 tokens: lowered from 8192"), std::string::npos);
  EXPECT_NE(text.find("http://[::1]:8000\n"), std::string::npos);
  EXPECT_NE(text.find("--no-enable-prefix-caching"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Summary, UsersAreCountedInWholeBlocksOfEveryGroup) {
  EXPECT_EQ(users_of(64, 1024, 16, 1), 1);
  EXPECT_EQ(users_of(63, 1024, 16, 1), 0);
  EXPECT_EQ(users_of(64, 17, 16, 1), 32);
  EXPECT_EQ(users_of(64, 16, 16, 6), 10);
}

TEST(LoadProgress, IsSilentForAShortLoad) {
  base::FakeClock clock;
  testing::internal::CaptureStderr();
  const model::LoadProgress progress = load_progress(clock, true);
  for (int i = 0; i <= 10; ++i) {
    progress(i, 10);
    clock.advance_us(100'000);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(LoadProgress, DrawsOneLineAndRemovesIt) {
  base::FakeClock clock;
  testing::internal::CaptureStderr();
  const model::LoadProgress progress = load_progress(clock, true);
  for (int i = 0; i <= 10; ++i) {
    clock.advance_us(1'000'000);
    progress(int64_t{i} << 30, int64_t{10} << 30);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("loading  50 % of 10.0 GiB, 6 s left"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[K"));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace pagoda
