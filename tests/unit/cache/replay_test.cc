#include "cache/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace pagoda::cache {
namespace {

constexpr int32_t kBlockSize = 16;

// Requests as paths of node names; a name stands for its block under one parent only.
class TraceMaker {
 public:
  TraceMaker() { trace.block_size = kBlockSize; }
  void request(const std::vector<int32_t>& path, int32_t priority = 50) {
    TraceRequest request;
    request.arrival_us = ++time_;
    request.n_blocks = static_cast<int32_t>(path.size());
    request.prompt_len = request.n_blocks * kBlockSize + 1;
    request.priority = priority;
    request.first = trace.nodes.size();
    int32_t parent = -1;
    for (const int32_t name : path) {
      const auto [it, is_new] = ids_.try_emplace({parent, name}, trace.n_nodes());
      if (is_new) trace.parents.push_back(parent);
      parent = it->second;
      trace.nodes.push_back(parent);
    }
    trace.requests.push_back(request);
  }
  Trace trace;

 private:
  std::map<std::pair<int32_t, int32_t>, int32_t> ids_;
  int64_t time_ = 0;
};

int64_t hits(const Trace& trace, ReplayConfig config) {
  const std::vector<int32_t> next = next_lookups(trace);
  const ReplayResult result = replay(trace, config, next);
  return (result.hit_tokens[0] + result.hit_tokens[1] + result.hit_tokens[2]) / kBlockSize;
}

TEST(Replay, TheLeastRecentlyUsedEndGoesFirst) {
  TraceMaker maker;
  maker.request({1, 2});
  maker.request({3, 4});
  maker.request({5});     // takes the place of 2
  maker.request({1, 2});  // finds 1, and takes that of 4
  maker.request({3, 4});  // finds 3
  EXPECT_EQ(hits(maker.trace, {.device_blocks = 4}), 2);
  EXPECT_EQ(hits(maker.trace, {.device_blocks = 5}), 4);
}

TEST(Replay, WhatLeavesTheDeviceIsFoundBelow) {
  TraceMaker maker;
  maker.request({1, 2});
  maker.request({3, 4});
  maker.request({1, 2});
  ReplayConfig config{.device_blocks = 2, .host_blocks = 4};
  EXPECT_EQ(replay(maker.trace, config).hit_tokens[1], 2 * kBlockSize);
  config = {.device_blocks = 2, .ssd_blocks = 400};
  EXPECT_EQ(replay(maker.trace, config).hit_tokens[2], 2 * kBlockSize);
  EXPECT_EQ(hits(maker.trace, {.device_blocks = 2}), 0);
}

TEST(Replay, AHigherPriorityStays) {
  TraceMaker maker;
  maker.request({1}, 90);
  maker.request({2});
  maker.request({3});
  maker.request({1}, 90);
  EXPECT_EQ(hits(maker.trace, {.device_blocks = 2}), 1);
}

TEST(Replay, FactsAreThoseOfRoomForAll) {
  TraceMaker maker;
  maker.request({1, 2});
  maker.request({1, 3});
  maker.request({1, 2});
  const TraceFacts facts = facts_of(maker.trace);
  EXPECT_EQ(facts.n_blocks, 3);
  EXPECT_EQ(facts.n_blocks_reused, 2);
  EXPECT_EQ(facts.hit_tokens, 3 * kBlockSize);
  EXPECT_EQ(hits(maker.trace, {.device_blocks = 3}), 3);
}

Trace random_trace(uint64_t seed) {
  std::mt19937_64 random(seed);
  TraceMaker maker;
  std::vector<std::vector<int32_t>> sent = {{}};
  for (int i = 0; i < 400; ++i) {
    std::vector<int32_t> path = sent[random() % sent.size()];
    path.resize(std::min<size_t>(path.size(), random() % 6));
    while (path.size() < 6) path.push_back(static_cast<int32_t>(random() % 4));
    maker.request(path);
    sent.push_back(path);
  }
  return maker.trace;
}

// Without a tree: each block by itself, the whole path touched, the deepest of the oldest first.
int64_t naive_lru(const Trace& trace, size_t capacity) {
  std::map<int32_t, std::pair<int32_t, int32_t>> here;  // node → (last use, −depth)
  int64_t n_hits = 0;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const std::span<const int32_t> path = trace.path(trace.requests[i]);
    for (const int32_t node : path) {
      if (!here.contains(node)) break;
      ++n_hits;
    }
    for (size_t k = 0; k < path.size(); ++k) {
      if (here.contains(path[k]))
        here[path[k]] = {static_cast<int32_t>(i), -static_cast<int32_t>(k)};
    }
    for (size_t k = 0; k < path.size(); ++k) {
      if (here.contains(path[k])) continue;
      if (here.size() == capacity) {
        here.erase(
            std::ranges::min_element(here, {}, [](const auto& each) { return each.second; }));
      }
      here[path[k]] = {static_cast<int32_t>(i), -static_cast<int32_t>(k)};
    }
  }
  return n_hits;
}

TEST(Replay, LruIsThatOfAList) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = random_trace(seed);
    for (const size_t capacity : {8, 20, 60}) {
      EXPECT_EQ(hits(trace, {.device_blocks = static_cast<int64_t>(capacity)}),
                naive_lru(trace, capacity))
          << seed << " " << capacity;
    }
  }
}

TEST(Replay, NothingIsBetterThanBest) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = random_trace(seed);
    for (const int64_t capacity : {8, 20, 60}) {
      const int64_t best = hits(trace, {.policy = ReplayPolicy::kBest, .device_blocks = capacity});
      EXPECT_GE(best, hits(trace, {.device_blocks = capacity}));
      EXPECT_GE(best, hits(trace, {.policy = ReplayPolicy::kScore, .device_blocks = capacity}));
    }
  }
}

}  // namespace
}  // namespace pagoda::cache
