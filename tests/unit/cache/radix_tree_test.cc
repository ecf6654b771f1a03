#include "cache/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace pagoda::cache {
namespace {

using Tables = std::vector<std::vector<BlockId>>;

// A tree of small blocks and the pool behind it, reduced to a count.
class Fixture {
 public:
  explicit Fixture(int32_t block_size, int32_t n_groups = 1)
      : block_size_(block_size), n_groups_(n_groups), tree(block_size, n_groups, {}) {}

  NodeId insert(const std::vector<int32_t>& tokens, const CacheScope& scope = {}) {
    const auto n = static_cast<int32_t>(tokens.size()) / block_size_;
    Tables tables(static_cast<size_t>(n_groups_));
    const NodeId end = tree.lock(scope, tokens, n, tables);
    const auto have = static_cast<int32_t>(tables[0].size());
    for (int32_t i = have; i < n; ++i) {
      for (auto& table : tables) table.push_back(BlockId(next_++));
    }
    std::vector<BlockId> twins;
    return tree.insert(end, std::span(tokens).subspan(static_cast<size_t>(have * block_size_)),
                       have, tables, twins);
  }
  int32_t evict(int32_t n) {
    int32_t done = 0;
    std::vector<BlockId> freed;
    while (done < n && tree.evict_one(freed)) ++done;
    tree.check();
    return done;
  }

 private:
  const int32_t block_size_;
  const int32_t n_groups_;
  int32_t next_ = 0;

 public:
  RadixTree tree;
};

const std::vector<int32_t> kA = {1, 2, 3, 4};
const std::vector<int32_t> kAB = {1, 2, 3, 4, 5, 6, 7, 8};

TEST(RadixTree, LockCoversTheNodeItself) {
  Fixture f(4);
  f.tree.unlock(f.insert(kA));
  f.tree.unlock(f.insert(kAB));
  Tables t1(1);
  Tables t2(1);
  const NodeId h1 = f.tree.lock({}, kAB, 2, t1);
  EXPECT_EQ(f.evict(2), 0);
  EXPECT_EQ(f.tree.n_on(TierKind::kDevice) - f.tree.n_evictable(), 2);
  const NodeId h2 = f.tree.lock({}, kA, 1, t2);
  f.tree.unlock(h1);
  EXPECT_EQ(f.tree.n_evictable(), 1);
  EXPECT_EQ(f.evict(2), 1);
  EXPECT_EQ(f.tree.match({}, kAB, 2).n_matched, 1);
  f.tree.unlock(h2);
  EXPECT_EQ(f.evict(2), 1);
  EXPECT_EQ(f.tree.n_on(TierKind::kDevice), 0);
}

TEST(RadixTree, LeavesGoBeforeParentsAndOldBeforeNew) {
  Fixture f(2);
  f.tree.unlock(f.insert({1, 1, 2, 2, 3, 3}));
  f.tree.unlock(f.insert({1, 1, 4, 4}));
  EXPECT_EQ(f.evict(1), 1);
  EXPECT_EQ(f.tree.match({}, std::vector<int32_t>{1, 1, 2, 2, 3, 3}, 3).n_matched, 2);
  EXPECT_EQ(f.evict(1), 1);
  EXPECT_EQ(f.tree.match({}, std::vector<int32_t>{1, 1, 2, 2, 3, 3}, 3).n_matched, 1);
  EXPECT_EQ(f.tree.match({}, std::vector<int32_t>{1, 1, 4, 4}, 2).n_matched, 2);
  EXPECT_EQ(f.evict(9), 2);
}

TEST(RadixTree, ScopesShareNothingAndLeaveNothingBehind) {
  Fixture f(2);
  f.tree.unlock(f.insert({1, 1}, {.salt = "x", .adapter = ""}));
  const std::vector<int32_t> tokens = {1, 1};
  EXPECT_EQ(f.tree.match({.salt = "x", .adapter = ""}, tokens, 1).n_matched, 1);
  EXPECT_EQ(f.tree.match({.salt = "", .adapter = "x"}, tokens, 1).n_matched, 0);
  EXPECT_EQ(f.tree.match({}, tokens, 1).n_matched, 0);
  int32_t n_nodes = 0;
  for (int32_t i = 0; i < 100; ++i) {
    Tables none(1);
    const CacheScope scope{.salt = std::to_string(i), .adapter = ""};
    f.tree.unlock(f.tree.lock(scope, tokens, 1, none));
  }
  f.evict(1);
  f.tree.visit([&](NodeId, NodeId, std::span<const BlockId>, int32_t) { ++n_nodes; });
  EXPECT_EQ(n_nodes, 0);
}

TEST(RadixTree, TwinsAreReplacedByTheTreesBlocks) {
  Fixture f(2);
  Tables a(1);
  Tables b(1);
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const NodeId end_a = f.tree.lock({}, tokens, 2, a);
  const NodeId end_b = f.tree.lock({}, tokens, 2, b);
  a[0] = {BlockId(0), BlockId(1)};
  b[0] = {BlockId(2), BlockId(3)};
  std::vector<BlockId> twins;
  const NodeId node_a = f.tree.insert(end_a, tokens, 0, a, twins);
  EXPECT_TRUE(twins.empty());
  const NodeId node_b = f.tree.insert(end_b, tokens, 0, b, twins);
  EXPECT_EQ(twins, (std::vector<BlockId>{BlockId(2), BlockId(3)}));
  EXPECT_EQ(b[0], a[0]);
  f.tree.check();
  f.tree.unlock(node_a);
  EXPECT_EQ(f.tree.n_evictable(), 0);
  f.tree.unlock(node_b);
  EXPECT_EQ(f.tree.n_evictable(), 2);
}

TEST(RadixTree, KeysAreThoseOfTheChain) {
  Fixture f(2, 2);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
  f.tree.unlock(f.insert({1, 2, 3, 4}));
  f.tree.unlock(f.insert({1, 2, 9, 9}));  // splits the first
  const NodeId end = f.insert(tokens);
  for (int16_t g = 0; g < 2; ++g) {
    BlockKey want = root_key({}, GroupId(g), {});
    for (size_t i = 0; i < 3; ++i) want = block_key(want, std::span(tokens).subspan(2 * i, 2));
    EXPECT_EQ(f.tree.key(end, GroupId(g)), want);
  }
  f.tree.unlock(end);
}

// Against a list of every committed path.
TEST(RadixTree, MatchesAsANaiveMapDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Fixture f(2);
    std::vector<std::vector<int32_t>> paths;
    for (int i = 0; i < 30; ++i) {
      std::vector<int32_t> tokens(2 * (1 + random() % 6));
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
      const auto n = static_cast<int32_t>(tokens.size()) / 2;
      int32_t want = 0;
      for (const auto& path : paths) {
        const auto [end, unused] = std::ranges::mismatch(path, tokens);
        want = std::max(want, static_cast<int32_t>(end - path.begin()) / 2);
      }
      ASSERT_EQ(f.tree.match({}, tokens, n).n_matched, want);
      f.tree.unlock(f.insert(tokens));
      f.tree.check();
      paths.push_back(tokens);
    }
    const int32_t n_total = f.tree.n_on(TierKind::kDevice);
    EXPECT_EQ(f.evict(n_total + 1), n_total);
  }
}

}  // namespace
}  // namespace pagoda::cache
