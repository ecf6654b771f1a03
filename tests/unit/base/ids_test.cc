#include "base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_map.h"

namespace pagoda {
namespace {

// The point of the type: no id is another id, and none is a number by accident.
static_assert(!std::is_convertible_v<int32_t, BlockId>);
static_assert(!std::is_convertible_v<BlockId, int32_t>);
static_assert(!std::is_convertible_v<BlockId, SlotId>);
static_assert(!std::is_constructible_v<SlotId, BlockId>);
static_assert(!std::is_constructible_v<SeqId, RequestId>);
static_assert(sizeof(BlockId) == sizeof(int32_t));
static_assert(std::is_trivially_copyable_v<BlockId>);

TEST(IdsTest, DefaultIsZeroAndOrderIsThatOfTheNumbers) {
  EXPECT_EQ(BlockId().value(), 0);
  EXPECT_LT(BlockId(-1), BlockId(0));
  EXPECT_GT(SeqId(~uint64_t{0}), SeqId(1));
  EXPECT_EQ(GroupId(3), GroupId(3));
  EXPECT_NE(GroupId(3), GroupId(4));
}

TEST(IdsTest, AreKeysOfBothKindsOfHashTable) {
  absl::flat_hash_map<BlockId, int> by_block;
  std::unordered_set<RequestId> requests;
  for (int i = 0; i < 1000; ++i) {
    by_block[BlockId(i)] = i;
    requests.insert(RequestId(static_cast<uint64_t>(i % 10)));
  }
  EXPECT_EQ(by_block.size(), 1000u);
  EXPECT_EQ(by_block.at(BlockId(999)), 999);
  EXPECT_EQ(requests.size(), 10u);
}

TEST(IdsTest, FormatAsTheirNumber) {
  EXPECT_EQ(fmt::format("block {} of seq {:04}", BlockId(7), SeqId(12)), "block 7 of seq 0012");
  EXPECT_EQ(fmt::format("{}", BlockId(-1)), "-1");
}

}  // namespace
}  // namespace pagoda
