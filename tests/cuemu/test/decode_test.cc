// Paged decode attention, both kernels, with the merging of parts and the plan above them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/cuemu/test/attention_case.h"

namespace pagoda::cuda {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kSmall = true;
#else
constexpr bool kSmall = false;
#endif

// PAGODA_FULL_MATRIX=1: every combination instead of every pair.
bool is_full() { return std::getenv("PAGODA_FULL_MATRIX") != nullptr; }

class Schedule {
 public:
  explicit Schedule(int n) {
    cuemu::options().order = static_cast<cuemu::Order>(n % 3);
    cuemu::options().seed = static_cast<uint64_t>(n) + 1;
    cuemu::options().reuse_contexts = kSmall;
  }
  ~Schedule() { cuemu::options() = {}; }
};

std::vector<AttentionCase::Seq> decoding(std::initializer_list<int32_t> lengths) {
  std::vector<AttentionCase::Seq> seqs;
  for (const int32_t length : lengths) seqs.push_back({length - 1, 1});
  return seqs;
}

std::string text_of(const AttentionCase& c) {
  std::string text = std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv_heads) + " heads of " +
                     std::to_string(c.head_dim) + ", blocks of " + std::to_string(c.block_size) +
                     ", window " + std::to_string(c.window) + ", contexts";
  for (const AttentionCase::Seq& seq : c.seqs) text += " " + std::to_string(seq.position + 1);
  return text;
}

template <typename T>
void expect_right(const AttentionCase& c, int schedule) {
  const Schedule use(schedule);
  for (const auto launch : {launch_decode_mma, launch_decode_simt}) {
    AttentionRun<T> run(c, static_cast<uint64_t>(schedule));
    EXPECT_LE(run.run(launch, nullptr), tolerance<T>())
        << text_of(c) << (launch == launch_decode_mma ? " (mma)" : " (simt)");
  }
}

template <typename T>
class DecodeTest : public testing::Test {};
using Types = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(DecodeTest, Types);

TYPED_TEST(DecodeTest, RaggedContexts) {
  AttentionCase c;
  c.seqs = decoding({1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65});
  for (const int32_t n_slots : {0, 1000}) {
    c.n_slots = n_slots;
    for (int schedule = 0; schedule < 3; ++schedule) {
      expect_right<TypeParam>(c, schedule);
      if (kSmall) return;
    }
  }
}

// Far enough that every stage of every warp's ring is filled again and again.
TYPED_TEST(DecodeTest, RingsWrapAround) {
  AttentionCase c;
  c.n_heads = 3;
  c.n_kv_heads = 1;
  c.seqs = decoding({kSmall ? 600 : 2005});
  for (const int32_t n_slots : {1, 2, 1000}) {
    c.n_slots = n_slots;
    expect_right<TypeParam>(c, n_slots);
  }
}

TYPED_TEST(DecodeTest, HeadSizesAndGroups) {
  struct Heads {
    int32_t n;
    int32_t n_kv;
  };
  const Heads heads[] = {{1, 1}, {3, 3}, {9, 3}, {4, 1}, {8, 1}, {12, 1}, {17, 1}, {14, 2}};
  int i = 0;
  for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
    for (const Heads& each : heads) {
      // One after the other meets every head size and every group at least twice.
      if (!is_full() && (i++ + head_dim / 16) % (kSmall ? 11 : 3) != 0) continue;
      AttentionCase c;
      c.n_heads = each.n;
      c.n_kv_heads = each.n_kv;
      c.head_dim = head_dim;
      c.block_size = i % 2 == 0 ? 16 : 48;
      c.seqs = decoding({97, 1, 300});
      c.n_slots = i % 3 == 0 ? 0 : 64;
      expect_right<TypeParam>(c, i);
    }
  }
}

TYPED_TEST(DecodeTest, Windows) {
  for (const int32_t window : {1, 15, 16, 17, 100, 1000}) {
    if (kSmall && window != 17) continue;
    AttentionCase c;
    c.window = window;
    c.seqs = decoding({1, 16, 17, 130, 700});
    c.n_slots = window % 2 == 0 ? 0 : 1000;
    expect_right<TypeParam>(c, window);
  }
}

TEST(DecodePlanTest, ContextsAreSplitToFillTheDevice) {
  AttentionCase c;
  c.seqs = decoding({4096});
  c.n_slots = 0;
  if (kSmall) c.seqs = decoding({1024});
  AttentionRun<Half> whole(c, 1);
  whole.run(launch_decode_mma, nullptr);
  EXPECT_EQ(whole.n_parts(), 0);
  c.n_slots = 2 * 16;
  AttentionRun<Half> split(c, 1);
  split.run(launch_decode_mma, nullptr);
  EXPECT_EQ(split.n_parts(), kSmall ? 4 : 16);  // of 256 tokens each
}

}  // namespace
}  // namespace pagoda::cuda
