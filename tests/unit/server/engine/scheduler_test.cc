#include "server/engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace pagoda::engine {
namespace {

// Sequences in the states that a plan looks at, over a real cache.
class SchedulerTest : public testing::Test {
 protected:
  void make_cache(int32_t n_blocks) {
    cache::KvCacheConfig config;
    config.n_blocks = n_blocks;
    cache_ = std::make_unique<cache::KvCache>(config);
  }
  void TearDown() override { sequences_.clear(); }

  Sequence* waiting(int32_t prompt_len, int32_t first_token, const std::string& tenant = "",
                    int32_t priority = 0) {
    Request request;
    request.prompt.resize(static_cast<size_t>(prompt_len));
    std::iota(request.prompt.begin(), request.prompt.end(), first_token);
    request.sampling.max_tokens = 100;
    request.arrival_us = static_cast<int64_t>(sequences_.size());
    request.tenant = tenant;
    request.priority = priority;
    sequences_.push_back(std::make_unique<Sequence>(SeqId(sequences_.size() + 1),
                                                    std::move(request), std::vector<TokenId>{}));
    waiting_.push_back(sequences_.back().get());
    return waiting_.back();
  }
  // Starts a waiting one and computes n of its tokens.
  void start(Sequence* sequence, int32_t n) {
    std::erase(waiting_, sequence);
    running_.push_back(sequence);
    sequence->hold(cache_->acquire(sequence->scope(), sequence->tokens(), cache::UseCache::kYes));
    sequence->start(SlotId(0));
    ASSERT_TRUE(cache_->try_extend(sequence->lease(), n));
    sequence->advance(n);
    cache_->commit(sequence->lease(), sequence->tokens(), n);
  }
  // One that has computed its prompt and decodes.
  Sequence* decoding(int32_t prompt_len, int32_t first_token) {
    Sequence* sequence = waiting(prompt_len, first_token);
    start(sequence, prompt_len);
    sequence->append(7);
    return sequence;
  }
  BatchPlan plan(int32_t max_tokens, int32_t max_seqs = 8) {
    return Scheduler().plan(waiting_, running_, {max_tokens, max_seqs}, *cache_);
  }
  static std::vector<uint64_t> ids(const BatchPlan& plan) {
    std::vector<uint64_t> ids;
    for (const BatchItem& item : plan.items) ids.push_back(item.id.value());
    return ids;
  }

  std::unique_ptr<cache::KvCache> cache_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;
};

TEST_F(SchedulerTest, MixesDecodesAndChunksUnderOneBudget) {
  make_cache(100);
  Sequence* prefill = waiting(100, 1000);
  start(prefill, 32);
  decoding(20, 2000);
  waiting(50, 3000);
  const BatchPlan plan = this->plan(64);
  ASSERT_EQ(ids(plan), (std::vector<uint64_t>{2, 1}));
  EXPECT_EQ(plan.items[0].count, 1);
  EXPECT_EQ(plan.items[1].start, 32);
  EXPECT_EQ(plan.items[1].count, 63);
}

TEST_F(SchedulerTest, IsPure) {
  make_cache(100);
  decoding(20, 2000);
  waiting(50, 3000);
  const BatchPlan first = plan(64);
  const BatchPlan second = plan(64);
  EXPECT_EQ(ids(first), ids(second));
  EXPECT_EQ(cache_->stats().n_free, 98);
}

TEST_F(SchedulerTest, ABudgetBelowTheNumberOfSequencesGoesRound) {
  make_cache(100);
  for (int32_t i = 0; i < 4; ++i) decoding(16, 1000 * i);
  std::vector<int> n_planned(4, 0);
  for (int64_t step = 0; step < 8; ++step) {
    for (const uint64_t id : ids(plan(1))) {
      ++n_planned[id - 1];
      sequences_[id - 1]->last_planned_step = step;
    }
  }
  EXPECT_EQ(n_planned, (std::vector<int>{2, 2, 2, 2}));
}

TEST_F(SchedulerTest, PromptsUnderWayKeepTheBlocksThatTheyStillNeed) {
  make_cache(10);
  Sequence* prefill = waiting(100, 1000);  // 7 blocks in the end
  start(prefill, 16);
  waiting(40, 2000);  // 3 blocks and one token more: 3
  EXPECT_EQ(ids(plan(512)).size(), 2U);
  waiting_.clear();
  waiting(60, 3000);  // 4 blocks
  EXPECT_EQ(ids(plan(512)).size(), 1U);
}

TEST_F(SchedulerTest, TheLatestArrivalGivesWay) {
  make_cache(3);
  decoding(16, 1000);
  decoding(16, 2000);
  decoding(16, 3000);
  const BatchPlan plan = this->plan(64);
  EXPECT_EQ(plan.preempts, (std::vector<SeqId>{SeqId(3), SeqId(2)}));
  EXPECT_EQ(ids(plan), (std::vector<uint64_t>{1}));
}

TEST_F(SchedulerTest, PriorityComesFirstAndNobodyPassesTheNextInLine) {
  make_cache(10);
  waiting(150, 1000, "", 1);
  waiting(16, 2000, "", 0);
  EXPECT_EQ(ids(plan(512)), (std::vector<uint64_t>{1}));
  Sequence* holder = decoding(64, 5000);
  EXPECT_TRUE(ids(plan(512)) == (std::vector<uint64_t>{holder->id().value()}));
}

TEST_F(SchedulerTest, TenantsTakeTurns) {
  make_cache(100);
  for (int32_t i = 0; i < 3; ++i) waiting(16, 1000 * i, "loud");
  waiting(16, 9000, "quiet");
  EXPECT_EQ(ids(plan(512)), (std::vector<uint64_t>{1, 4, 2, 3}));
  EXPECT_EQ(ids(plan(512, 2)), (std::vector<uint64_t>{1, 4}));
}

TEST_F(SchedulerTest, StandingAsideIsNotRunning) {
  make_cache(100);
  for (int32_t i = 0; i < 4; ++i) waiting(64, 1000, "a");
  waiting(16, 5000, "a");
  waiting(16, 6000, "b");
  waiting(16, 7000, "b");
  EXPECT_EQ(ids(plan(512)), (std::vector<uint64_t>{1, 6, 5, 7}));
}

TEST_F(SchedulerTest, AnOwnerTakesThePriorityOfThoseThatWaitForIt) {
  make_cache(6);
  Sequence* owner = waiting(64, 1000, "", -5);
  start(owner, 32);
  decoding(64, 2000);  // takes all the other blocks and needs one more
  EXPECT_EQ(plan(512).preempts, (std::vector<SeqId>{owner->id()}));
  waiting(64, 1000, "", 5);
  EXPECT_EQ(plan(512).preempts, (std::vector<SeqId>{SeqId(2)}));
}

TEST_F(SchedulerTest, EqualPromptsThatArriveTogetherAreComputedOnce) {
  make_cache(100);
  waiting(64, 1000);
  waiting(64, 1000);
  waiting(64, 2000);
  EXPECT_EQ(ids(plan(512)), (std::vector<uint64_t>{1, 3}));
  start(sequences_[0].get(), 16);  // promises 4 blocks, has kept one
  waiting_ = {sequences_[1].get()};
  EXPECT_EQ(ids(plan(512)), (std::vector<uint64_t>{1}));
  sequences_[0]->advance(48);
  ASSERT_TRUE(cache_->try_extend(sequences_[0]->lease(), 64));
  cache_->commit(sequences_[0]->lease(), sequences_[0]->tokens(), 64);
  const BatchPlan plan = this->plan(512);
  ASSERT_EQ(ids(plan), (std::vector<uint64_t>{2}));
  EXPECT_EQ(plan.items[0].start, 48);
}

}  // namespace
}  // namespace pagoda::engine
