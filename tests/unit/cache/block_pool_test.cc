#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace pagoda::cache {
namespace {

void expect_four_different_then_none(BlockPool& pool) {
  std::set<int32_t> ids;
  for (int i = 0; i < 4; ++i) {
    const auto block = pool.try_allocate();
    ASSERT_TRUE(block.has_value());
    ids.insert(block->value());
  }
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_FALSE(pool.try_allocate().has_value());
}

// A block that stands twice in one list, released before and after its owner.
TEST(BlockPool, BlockListedTwiceIsFreedOnceWhenTheListGoesFirst) {
  BlockPool pool(4);
  const BlockId block = *pool.try_allocate();
  const std::vector<BlockId> twice = {block, block};
  pool.pin(twice);
  EXPECT_EQ(pool.ref_count(block), 3);
  ASSERT_TRUE(pool.release(twice));
  EXPECT_EQ(pool.ref_count(block), 1);
  EXPECT_EQ(pool.n_free(), 3);
  ASSERT_TRUE(pool.release({{block}}));
  EXPECT_EQ(pool.n_free(), 4);
  expect_four_different_then_none(pool);
}

TEST(BlockPool, BlockListedTwiceIsFreedOnceWhenTheListGoesLast) {
  BlockPool pool(4);
  const BlockId block = *pool.try_allocate();
  const std::vector<BlockId> twice = {block, block};
  pool.pin(twice);
  ASSERT_TRUE(pool.release({{block}}));
  EXPECT_EQ(pool.n_free(), 3);
  ASSERT_TRUE(pool.release(twice));
  EXPECT_EQ(pool.n_free(), 4);
  expect_four_different_then_none(pool);
}

TEST(BlockPool, ReleaseBelowZeroIsRefusedWhole) {
  BlockPool pool(4);
  const BlockId a = *pool.try_allocate();
  const BlockId b = *pool.try_allocate();
  EXPECT_FALSE(pool.release({{b, a, a}}));
  EXPECT_EQ(pool.ref_count(a), 1);
  EXPECT_EQ(pool.ref_count(b), 1);
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_TRUE(pool.release({{b, a}}));
  EXPECT_FALSE(pool.release({{a}}));
  EXPECT_EQ(pool.n_free(), 4);
}

}  // namespace
}  // namespace pagoda::cache
