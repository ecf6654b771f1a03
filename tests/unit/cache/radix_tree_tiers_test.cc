#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cache/radix_tree.h"
#include "tests/fuzz/radix_model.h"

namespace pagoda::cache {
namespace {

using Path = std::vector<int32_t>;
using Tables = std::vector<std::vector<BlockId>>;

// A tree of one-token blocks.
class RadixTiers : public testing::Test {
 protected:
  void commit(const Path& path) {
    Tables tables(1);
    const auto n = static_cast<int32_t>(path.size());
    const NodeId end = tree.lock({}, path, n, tables);
    const auto have = static_cast<int32_t>(tables[0].size());
    n_computed += n - have;
    while (std::ssize(tables[0]) < n) tables[0].push_back(BlockId(next_block_++));
    std::vector<BlockId> twins;
    tree.unlock(
        tree.insert(end, std::span(path).subspan(static_cast<size_t>(have)), have, tables, twins));
    tree.check();
  }
  static BlockKey key(const Path& path) {
    BlockKey key = root_key({}, GroupId(0), {});
    for (const int32_t& token : path) key = block_key(key, {&token, 1});
    return key;
  }
  static BlockRecord record(const Path& path) {
    BlockRecord record;
    record.key = key(path);
    record.parent = key({path.begin(), path.end() - 1});
    record.salt = salt_digest("");
    record.tokens = {path.back()};
    return record;
  }
  int32_t evict(int32_t n) {
    int32_t done = 0;
    std::vector<BlockId> freed;
    while (done < n && tree.evict_one(freed)) ++done;
    tree.check();
    return done;
  }
  BlockKey evict_host() {
    std::vector<BlockKey> dropped;
    EXPECT_TRUE(tree.evict_host(dropped));
    EXPECT_EQ(dropped.size(), 1U);
    tree.check();
    return dropped.at(0);
  }
  TreeMatch match(const Path& path) {
    return tree.match({}, path, static_cast<int32_t>(path.size()));
  }

  RadixTree tree{1, 1, {}};
  int32_t n_computed = 0;

 private:
  int32_t next_block_ = 0;
};

// A tier's victim has no child with a copy in that tier, whatever lies elsewhere.
TEST_F(RadixTiers, AHostVictimHasNoChildInTheHostTier) {
  const Path x = {1};
  const Path xy = {1, 2};
  const Path xyz = {1, 2, 3};
  commit(xyz);
  for (const Path& path : {x, xy, xyz}) ASSERT_TRUE(tree.add_copy(TierKind::kHost, key(path)));
  EXPECT_EQ(evict(3), 3);
  EXPECT_EQ(match(xyz).n_host, 3);
  EXPECT_EQ(evict_host(), key(xyz));
  EXPECT_EQ(match(xyz).n_host, 2);
  // x and y come up, z is computed and copied again.
  n_computed = 0;
  commit(xyz);
  ASSERT_TRUE(tree.add_copy(TierKind::kHost, key(xyz)));
  EXPECT_EQ(match(xyz).n_matched, 3);
  EXPECT_EQ(evict(1), 1);
  EXPECT_EQ(match(xyz).n_matched, 2);
  EXPECT_EQ(match(xyz).n_host, 1);
  EXPECT_EQ(evict_host(), key(xyz));
  EXPECT_EQ(evict_host(), key(xy));
  EXPECT_EQ(evict_host(), key(x));
}

TEST_F(RadixTiers, AHostCopyNeedsItsParents) {
  commit({1, 2});
  EXPECT_FALSE(tree.add_copy(TierKind::kHost, key({1, 2})));
  EXPECT_TRUE(tree.add_copy(TierKind::kHost, key({1})));
  EXPECT_TRUE(tree.add_copy(TierKind::kHost, key({1, 2})));
  std::vector<BlockKey> dropped;
  tree.remove_copy(TierKind::kHost, key({1}), dropped);
  EXPECT_EQ(dropped.size(), 2U);
  EXPECT_FALSE(tree.add_copy(TierKind::kHost, key({7})));  // nobody knows it
}

TEST_F(RadixTiers, AWholeBranchMayGoFromTheHostTier) {
  commit({9});
  commit({1, 2});
  commit({1, 3});
  for (const Path& path : {Path{1}, Path{1, 2}, Path{1, 3}}) {
    ASSERT_TRUE(tree.add_copy(TierKind::kHost, key(path)));
  }
  EXPECT_EQ(evict(9), 4);
  std::vector<BlockKey> dropped;
  tree.remove_copy(TierKind::kHost, key({1}), dropped);
  EXPECT_EQ(dropped.size(), 3U);
  EXPECT_FALSE(tree.knows(key({1})));
  tree.check();
}

TEST_F(RadixTiers, AnSsdCopyWithoutItsParentIsUnreachableUntilThatReturns) {
  commit({1, 2, 3});
  ASSERT_TRUE(tree.add_copy(TierKind::kSsd, key({1, 2, 3})));
  EXPECT_EQ(evict(9), 3);
  EXPECT_EQ(match({1, 2, 3}).n_below(), 0);
  EXPECT_TRUE(tree.knows(key({1, 2, 3})));
  commit({1, 2});
  EXPECT_EQ(match({1, 2, 3}).n_matched, 2);
  EXPECT_EQ(match({1, 2, 3}).n_ssd, 1);
  std::vector<BlockKey> none;
  tree.remove_copy(TierKind::kSsd, key({1, 2, 3}), none);
  EXPECT_FALSE(tree.knows(key({1, 2, 3})));
  tree.check();
}

TEST_F(RadixTiers, FoundRecordsComeInAnyOrder) {
  tree.add_found(record({1, 2, 3}));
  tree.add_found(record({1, 2}));
  tree.add_found(record({5}));
  EXPECT_EQ(tree.n_waiting_for_parents(), 3U);
  // A scope's root is there once somebody asks for it.
  commit({9});
  EXPECT_EQ(match({5}).n_ssd, 1);
  EXPECT_EQ(match({1, 2, 3}).n_ssd, 0);
  tree.add_found(record({1}));
  EXPECT_EQ(match({1, 2, 3}).n_ssd, 3);
  EXPECT_EQ(tree.n_waiting_for_parents(), 0U);
  BlockRecord forged = record({1, 2, 4});
  forged.tokens = {8};
  tree.add_found(forged);
  EXPECT_EQ(match({1, 2, 8}).n_ssd, 2);
  tree.check();
}

TEST_F(RadixTiers, WhatHasNoCopyYetIsListedParentsFirst) {
  commit({1, 2, 3});
  ASSERT_TRUE(tree.add_copy(TierKind::kSsd, key({1, 2})));
  Tables tables(1);
  const NodeId end = tree.lock({}, Path{1, 2, 3}, 3, tables);
  const std::vector<BlockAbove> missing = tree.without_copy(end, TierKind::kSsd, 0);
  ASSERT_EQ(missing.size(), 2U);
  EXPECT_EQ(missing[0].record.key, key({1}));
  EXPECT_EQ(missing[1].record.key, key({1, 2, 3}));
  EXPECT_EQ(missing[1].record.parent, key({1, 2}));
  EXPECT_EQ(missing[1].record.tokens, Path{3});
  EXPECT_EQ(missing[1].block, tables[0][2]);
  EXPECT_EQ(tree.without_copy(end, TierKind::kSsd, 2).size(), 1U);
  tree.unlock(end);
}

TEST_F(RadixTiers, LowerPrioritiesGoFirst) {
  commit({1, 2});
  commit({1, 3});
  commit({4});
  Tables tables(1);
  const NodeId end = tree.lock({}, Path{1, 2}, 2, tables);
  tree.set_priority(end, 90);
  tree.unlock(end);
  EXPECT_EQ(evict(1), 1);  // the oldest of the others: 1 3
  EXPECT_EQ(match({1, 3}).n_matched, 1);
  EXPECT_EQ(evict(1), 1);
  EXPECT_EQ(match({4}).n_matched, 0);
  EXPECT_EQ(match({1, 2}).n_matched, 2);
}

TEST_F(RadixTiers, APathIsDroppedAsFarAsItIsAlone) {
  commit({1, 2, 3});
  commit({1, 7});
  ASSERT_TRUE(tree.add_copy(TierKind::kSsd, key({1, 2})));
  RadixTree::Dropped dropped;
  tree.drop_path({}, Path{1, 2, 3}, dropped);
  tree.check();
  EXPECT_EQ(dropped.blocks.size(), 2U);
  EXPECT_TRUE(dropped.host.empty());
  EXPECT_EQ(dropped.ssd, std::vector<BlockKey>{key({1, 2})});
  EXPECT_EQ(match({1, 2, 3}).n_matched, 1);
  EXPECT_EQ(match({1, 7}).n_matched, 2);
}

TEST_F(RadixTiers, ASaltIsDroppedAsFarAsNobodyUsesIt) {
  commit({1, 2, 3});
  commit({1, 7});
  ASSERT_TRUE(tree.add_copy(TierKind::kHost, key({1})));
  ASSERT_TRUE(tree.add_copy(TierKind::kSsd, key({1, 2, 3})));
  tree.add_found(record({5, 6}));  // its parent may come yet
  Tables tables(1);
  const NodeId used = tree.lock({}, Path{1, 7}, 2, tables);

  RadixTree::Dropped dropped;
  EXPECT_FALSE(tree.drop_salt("", dropped));
  tree.check();
  EXPECT_EQ(dropped.blocks.size(), 2U);  // 2 and 3
  EXPECT_EQ(dropped.host, std::vector<BlockKey>{key({1})});
  EXPECT_EQ(dropped.ssd, std::vector<BlockKey>{key({1, 2, 3})});
  EXPECT_EQ(tree.n_waiting_for_parents(), 0U);
  EXPECT_EQ(match({1, 2, 3}).n_matched, 1);
  EXPECT_EQ(match({1, 7}).n_matched, 2);

  tree.unlock(used);
  dropped = {};
  EXPECT_TRUE(tree.drop_salt("", dropped));
  tree.check();
  EXPECT_EQ(dropped.blocks.size(), 2U);
  EXPECT_EQ(match({1, 7}).n_matched, 0);
  dropped = {};
  EXPECT_TRUE(tree.drop_salt("", dropped));
  EXPECT_TRUE(dropped.blocks.empty());
}

TEST_F(RadixTiers, ADroppedSaltTakesNothingOfAnotherWithIt) {
  commit({1, 2});
  RadixTree::Dropped dropped;
  EXPECT_TRUE(tree.drop_salt("another", dropped));
  EXPECT_EQ(match({1, 2}).n_matched, 2);
}

TEST(RadixTreeParts, AMatchInsideABlockAndWhereTextsPart) {
  RadixTree tree(4, 1, {});
  Tables tables(1);
  const Path path = {1, 2, 3, 4, 5, 6, 7, 8};
  const NodeId end = tree.lock({}, path, 2, tables);
  tables[0] = {BlockId(0), BlockId(1)};
  std::vector<BlockId> twins;
  tree.unlock(tree.insert(end, path, 0, tables, twins));
  const Path question = {1, 2, 3, 4, 5, 6, 9, 9, 9};
  const auto partial = tree.match_partial({}, question);
  ASSERT_TRUE(partial.has_value());
  EXPECT_EQ(partial->n_tokens, 2);
  EXPECT_EQ(partial->blocks, std::vector<BlockId>{BlockId(1)});
  EXPECT_EQ(tree.match_partial({}, Path{1, 9})->n_tokens, 1);
  EXPECT_FALSE(tree.match_partial({}, Path{9, 9}).has_value());
  const auto parting = tree.parting({}, question, 8);
  ASSERT_TRUE(parting.has_value());
  EXPECT_EQ(parting->position, 6);
  EXPECT_EQ(parting->kept, (Path{7, 8}));
  EXPECT_EQ(tree.n_in_other_scopes({.salt = "s", .adapter = ""}, question), 1);
  EXPECT_EQ(tree.n_in_other_scopes({}, question), 0);
}

TEST(RadixTreeModel, DoesWhatASlowMapDoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> bytes(400);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    RadixModel(bytes).run();
  }
}

}  // namespace
}  // namespace pagoda::cache
