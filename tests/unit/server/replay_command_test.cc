#include "server/replay_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pagoda {
namespace {

using testing::HasSubstr;
using testing::Not;

cache::Trace trace(int64_t block_bytes) {
  const std::string text =
      "{\"pagoda_trace\":1,\"block_size\":16}\n"
      "{\"t_ms\":0,\"prompt_len\":40,\"output_len\":8,\"blocks\":[1,2]}\n"
      "{\"t_ms\":9,\"prompt_len\":40,\"output_len\":8,\"blocks\":[8,9]}\n"
      "{\"t_ms\":3600000,\"prompt_len\":60,\"output_len\":8,\"blocks\":[1,2,3,4]}\n";
  cache::Trace trace = *cache::parse_trace(text, "t");
  trace.block_bytes = block_bytes;
  return trace;
}

TEST(ReplayCommand, WithoutSizesItGoesThroughPartsOfTheWorkingSet) {
  const ReplayReport report = *replay_trace(trace(1 << 20), {});
  EXPECT_EQ(report.rows.size(), 8U);
  const std::string text = replay_text(report);
  EXPECT_THAT(text, HasSubstr("3 requests in 1.0 hours"));
  EXPECT_THAT(text, HasSubstr("6 different blocks of 16 tokens: a working set of 6.0 MiB"));
  EXPECT_THAT(text, HasSubstr("22.9 % of the prompts' tokens are found"));
  EXPECT_THAT(text, HasSubstr("6.0 MiB (100 %)"));
}

TEST(ReplayCommand, WithSizesItTellsTheTiersApart) {
  ReplayCommand command;
  command.device_bytes = 2 << 20;
  command.host_bytes = 4 << 20;
  const ReplayReport report = *replay_trace(trace(1 << 20), command);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_THAT(replay_text(report), HasSubstr("by tier"));
  const auto json = nlohmann::json::parse(replay_json(report));
  EXPECT_EQ(json["rows"][0]["host_blocks"], 4);
  EXPECT_GT(json["rows"][0]["lru"]["host_tokens"], 0);
}

TEST(ReplayCommand, SizesNeedWhatABlockTakes) {
  ReplayCommand command;
  command.device_bytes = 1 << 20;
  EXPECT_THAT(std::string(replay_trace(trace(0), command).status().message()),
              HasSubstr("--block-bytes"));
  EXPECT_THAT(replay_text(*replay_trace(trace(0), {})), Not(HasSubstr("MiB")));
  command = {};
  command.ssd_bytes = 1;
  EXPECT_THAT(std::string(replay_trace(trace(1), command).status().message()),
              HasSubstr("--device"));
}

}  // namespace
}  // namespace pagoda
