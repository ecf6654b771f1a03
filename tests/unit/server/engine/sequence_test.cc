#include "server/engine/sequence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/unit/support/count_allocations.h"

namespace pagoda::engine {
namespace {

Request request(int32_t prompt_len) {
  Request request;
  request.prompt.resize(static_cast<size_t>(prompt_len));
  std::iota(request.prompt.begin(), request.prompt.end(), 0);
  request.sampling.max_tokens = 8;
  return request;
}

TEST(Sequence, TheFrontStopsAtTheTailAndJumpsWhenAllOfItIsThere) {
  Sequence sequence(SeqId(1), request(100), {});
  EXPECT_FALSE(sequence.follow_restore(cache::RestoreView{.begin = 48, .landed = 80, .end = 96}));
  EXPECT_EQ(sequence.n_pending(), 48);
  sequence.advance(48);
  EXPECT_EQ(sequence.n_pending(), 0);
  EXPECT_FALSE(sequence.follow_restore(cache::RestoreView{.begin = 48, .landed = 64, .end = 96}));
  EXPECT_TRUE(sequence.follow_restore(cache::RestoreView{.begin = 48, .landed = 48, .end = 96}));
  EXPECT_EQ(sequence.computed_len(), 96);
  EXPECT_FALSE(sequence.has_tail());
  EXPECT_EQ(sequence.n_pending(), 4);
}

TEST(Sequence, WhatIsBehindTheFrontWaitsForIt) {
  Sequence sequence(SeqId(1), request(100), {});
  sequence.advance(10);
  EXPECT_FALSE(sequence.follow_restore(cache::RestoreView{.begin = 32, .landed = 32, .end = 96}));
  EXPECT_EQ(sequence.n_pending(), 22);
  EXPECT_EQ(sequence.computed_len(), 10);
}

TEST(Sequence, ARestoreThatFailedLeavesEverythingToTheFront) {
  Sequence sequence(SeqId(1), request(100), {});
  EXPECT_FALSE(sequence.follow_restore(cache::RestoreView{.begin = 48, .landed = 80, .end = 96}));
  EXPECT_FALSE(sequence.follow_restore(cache::RestoreView{.begin = 64, .landed = 64, .end = 96}));
  EXPECT_EQ(sequence.n_pending(), 64);
  EXPECT_FALSE(sequence.follow_restore(std::nullopt));
  EXPECT_EQ(sequence.n_pending(), 100);
}

TEST(Sequence, TokensThatCameUpAreCountedOnce) {
  cache::KvCache cache({.n_blocks = 8});
  Sequence sequence(SeqId(1), request(100), {});
  const auto start = [&] {
    sequence.hold(cache.acquire({}, sequence.tokens(), cache::UseCache::kYes));
    sequence.start(SlotId(0));
  };
  start();
  sequence.add_restored({0, 16, 32});
  cache.release(sequence.stop(SeqState::kPreempted));
  start();
  sequence.add_restored({0, 16, 32});
  EXPECT_EQ(sequence.usage().cached_tokens, 48);
  EXPECT_EQ(sequence.usage().cached_by_tier, (std::array<int32_t, 3>{0, 16, 32}));
}

TEST(Sequence, EndIdsEndOnlyWhereTheyMay) {
  Request r = request(3);
  r.sampling.stop_ids = {9};
  Sequence plain(SeqId(1), r, {7});
  EXPECT_TRUE(plain.is_stop(7));
  EXPECT_TRUE(plain.is_stop(9));
  EXPECT_FALSE(plain.is_stop(8));
  r.sampling.ignore_eos = true;
  Sequence ignoring(SeqId(2), r, {7});
  EXPECT_FALSE(ignoring.is_stop(7));
  EXPECT_TRUE(ignoring.is_stop(9));
}

TEST(Sequence, NoEndIdCanBeDrawnBeforeMinTokens) {
  Request r = request(3);
  r.sampling.min_tokens = 1;
  r.sampling.stop_ids = {9};
  r.sampling.logit_bias = {{4, 1.5F}};
  Sequence sequence(SeqId(1), r, {7});
  EXPECT_FALSE(sequence.is_stop(7));
  const ops::SampleRow first = sequence.draw();
  ASSERT_EQ(first.n_bias, 3);
  EXPECT_EQ(first.bias[0].token, 4);
  EXPECT_TRUE(std::isinf(first.bias[1].value) && std::isinf(first.bias[2].value));
  sequence.append(4);
  EXPECT_TRUE(sequence.is_stop(7));
  EXPECT_EQ(sequence.draw().n_bias, 1);
  EXPECT_EQ(sequence.draw().position, 1);
}

TEST(Sequence, ADecodeStepAllocatesNothing) {
  Request r = request(500);
  r.sampling.max_tokens = 200;
  r.sampling.min_tokens = 100;
  r.sampling.stop_ids = {9};
  r.sampling.repetition_penalty = 1.2F;
  r.sampling.frequency_penalty = 0.5F;
  r.sampling.bad_words = {{1}, {499, 2}, {700, 3}, {1000, 700, 4}, {1000, 700, 5}};
  Sequence sequence(SeqId(1), std::move(r), {7});
  const int64_t before = test::count_allocations();
  int32_t n_bias = 0;
  for (int32_t i = 0; i < 200; ++i) {
    n_bias += sequence.draw().n_bias;
    sequence.append(i % 2 == 0 ? 1000 - i : 700);
  }
  EXPECT_EQ(test::count_allocations(), before);
  EXPECT_EQ(n_bias, 200 + 2 * 100 + 1 + 99 + 2);
}

TEST(Sequence, CountsAreOfTheWholeHistory) {
  Request r = request(0);
  r.prompt = {4, 9, 4};
  r.sampling.repetition_penalty = 2;
  Sequence sequence(SeqId(1), r, {});
  for (const TokenId token : {9, 2, 9}) sequence.append(token);
  const auto counts_of = [](const Sequence& s) {
    std::vector<std::pair<int32_t, int32_t>> counts;
    const ops::SampleRow row = s.draw();
    for (int32_t i = 0; i < row.n_counts; ++i) {
      counts.emplace_back(row.counts[i].token, row.counts[i].n_output);
    }
    return counts;
  };
  using Counts = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(counts_of(sequence), (Counts{{2, 1}, {4, 0}, {9, 2}}));
  // The other penalties need the answer alone, and without any nothing is kept.
  r.sampling.repetition_penalty = 1;
  r.sampling.presence_penalty = 0.5F;
  Sequence present(SeqId(2), r, {});
  present.append(9);
  EXPECT_EQ(counts_of(present), (Counts{{9, 1}}));
  r.sampling.presence_penalty = 0;
  Sequence plain(SeqId(3), r, {});
  plain.append(9);
  EXPECT_EQ(plain.draw().n_counts, 0);
}

TEST(Sequence, BadWordsBanTheirLastIdWhereTheirBeginningStands) {
  Request r = request(0);
  r.prompt = {5, 6};
  r.sampling.bad_words = {{1}, {6, 2}, {5, 6, 3}, {6, 6, 4}, {0, 5, 6, 7}, {6, 8, 9}};
  Sequence sequence(SeqId(1), r, {});
  const auto banned = [&] {
    std::vector<int32_t> ids;
    const ops::SampleRow row = sequence.draw();
    for (int32_t i = 0; i < row.n_bias; ++i) ids.push_back(row.bias[i].token);
    return ids;
  };
  EXPECT_EQ(banned(), (std::vector<int32_t>{1, 2, 3}));
  sequence.append(8);
  EXPECT_EQ(banned(), (std::vector<int32_t>{1, 9}));
  sequence.append(6);
  EXPECT_EQ(banned(), (std::vector<int32_t>{1, 2}));
  sequence.append(6);
  EXPECT_EQ(banned(), (std::vector<int32_t>{1, 2, 4}));
}

}  // namespace
}  // namespace pagoda::engine
