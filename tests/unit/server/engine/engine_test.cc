#include "server/engine/engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/sim/hash_runner.h"

namespace pagoda::engine {
namespace {

// Remembers an answer; any thread may wait for its end.
class WaitingSink final : public TokenSink {
 public:
  void push(TokenEvent&& event) override {
    std::lock_guard lock(mutex_);
    if (event.kind == TokenEvent::Kind::kToken) tokens_.push_back(event.result.token);
    if (event.kind == TokenEvent::Kind::kFinish) end_ = std::move(event);
    changed_.notify_all();
  }
  TokenEvent wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return end_.kind == TokenEvent::Kind::kFinish; });
    return end_;
  }
  void wait_for_tokens(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= n || finished_locked(); });
  }
  bool finished() {
    std::lock_guard lock(mutex_);
    return finished_locked();
  }
  std::vector<TokenId> tokens() {
    std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  bool finished_locked() const { return end_.kind == TokenEvent::Kind::kFinish; }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  TokenEvent end_;
};

class EngineTest : public testing::Test {
 protected:
  void make(int32_t n_blocks, int32_t n_slots, int32_t max_rows, int32_t max_queue = 100) {
    runner_config_.n_blocks = n_blocks;
    runner_config_.n_slots = n_slots;
    runner_config_.max_rows = max_rows;
    runner_ = std::make_unique<sim::HashRunner>(runner_config_);
    cache::KvCacheConfig cache_config;
    cache_config.n_blocks = n_blocks;
    cache_ = std::make_unique<cache::KvCache>(cache_config);
    EngineConfig config;
    config.max_num_seqs = n_slots;
    config.max_num_batched_tokens = max_rows;
    config.max_queue = max_queue;
    config.max_model_len = cache_->max_tokens();
    config.end_ids = {1};
    engine_ = std::make_unique<Engine>(config, *runner_, *cache_, clock_, metrics_);
  }

  Request request(int32_t prompt_len, int32_t max_tokens) {
    Request request;
    request.id = RequestId(++n_requests_);
    request.prompt.resize(static_cast<size_t>(prompt_len));
    std::iota(request.prompt.begin(), request.prompt.end(), static_cast<int32_t>(n_requests_ % 50));
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.arrival_us = clock_.now_us();
    request.sink = std::make_shared<WaitingSink>();
    return request;
  }
  static std::shared_ptr<WaitingSink> sink_of(const Request& request) {
    return std::static_pointer_cast<WaitingSink>(request.sink);
  }
  std::vector<TokenId> solo(const Request& request) const {
    sim::HashRunner::SoloRequest solo;
    solo.prompt = request.prompt;
    solo.max_tokens = request.sampling.max_tokens;
    solo.seed = request.sampling.seed;
    return sim::HashRunner::solo_answer(runner_config_, solo).tokens;
  }
  void run_to_rest() {
    while (engine_->step()) cache_->check();
  }

  sim::HashRunnerConfig runner_config_;
  base::FakeClock clock_;
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  std::unique_ptr<sim::HashRunner> runner_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<Engine> engine_;
  uint64_t n_requests_ = 0;
};

TEST_F(EngineTest, RefusesWhatCanNeverFitAndNamesTheNumbers) {
  make(4, 4, 32);
  Request too_long = request(60, 5);
  const absl::Status status = engine_->submit(too_long);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message = base::message_of(status);
  for (const char* number : {"64", "60", "5"}) EXPECT_NE(message.find(number), std::string::npos);
  EXPECT_TRUE(engine_->submit(request(59, 5)).ok());
  EXPECT_FALSE(engine_->submit(request(0, 5)).ok());
  run_to_rest();
}

TEST_F(EngineTest, AFullQueueRefuses) {
  make(8, 1, 32, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engine_->submit(request(4, 2)).ok());
  EXPECT_EQ(engine_->submit(request(4, 2)).code(), absl::StatusCode::kResourceExhausted);
  run_to_rest();
  EXPECT_TRUE(engine_->submit(request(4, 2)).ok());
  run_to_rest();
}

TEST_F(EngineTest, PreemptedAnswersAreTheSoloAnswers) {
  make(6, 2, 64);
  Request a = request(30, 48);
  Request b = request(20, 48);
  a.sampling.seed = b.sampling.seed = 1234;
  ASSERT_TRUE(engine_->submit(a).ok());
  ASSERT_TRUE(engine_->submit(b).ok());
  run_to_rest();
  EXPECT_GE(engine_->stats().n_preemptions, 1);
  EXPECT_EQ(sink_of(a)->tokens(), solo(a));
  EXPECT_EQ(sink_of(b)->tokens(), solo(b));
  EXPECT_EQ(sink_of(b)->wait().usage.completion_tokens, 48);
}

TEST_F(EngineTest, CancelLeavesTheNextBatchAndGivesItsBlocksBack) {
  make(16, 2, 64);
  Request a = request(40, 100);
  ASSERT_TRUE(engine_->submit(a).ok());
  for (int i = 0; i < 5; ++i) engine_->step();
  EXPECT_GT(engine_->stats().cache.n_in_use, 0);
  engine_->cancel(a.id);
  const int64_t n_rows = runner_->n_rows_run();
  engine_->step();
  EXPECT_EQ(runner_->n_rows_run(), n_rows);
  EXPECT_EQ(sink_of(a)->wait().reason, FinishReason::kAbort);
  EXPECT_EQ(engine_->stats().cache.n_in_use, 0);
  EXPECT_EQ(engine_->stats().n_running, 0);
  EXPECT_EQ(metrics_.requests.n_finished(FinishReason::kAbort), 1);
  engine_->cancel(a.id);
  engine_->cancel(RequestId(999));
  engine_->step();
}

TEST_F(EngineTest, AQueuedRequestWhoseClientLeftIsNeverComputed) {
  make(16, 1, 64);
  Request first = request(10, 20);
  Request second = request(30, 20);
  Request third = request(12, 4);
  for (const Request& r : {first, second, third}) ASSERT_TRUE(engine_->submit(r).ok());
  engine_->step();
  engine_->cancel(second.id);
  run_to_rest();
  EXPECT_EQ(metrics_.prompt_tokens.Value(), 22);
  EXPECT_EQ(runner_->n_rows_run(), 10 + 19 + 12 + 3);
  EXPECT_EQ(sink_of(second)->wait().reason, FinishReason::kAbort);
}

TEST_F(EngineTest, DeadlinesEndWaitingAndRunningRequests) {
  make(16, 1, 64);
  Request running = request(10, 100);
  Request waiting = request(10, 100);
  running.deadline_us = waiting.deadline_us = clock_.now_us() + 1000;
  ASSERT_TRUE(engine_->submit(running).ok());
  ASSERT_TRUE(engine_->submit(waiting).ok());
  engine_->step();
  clock_.advance_us(1000);
  engine_->step();
  for (const Request& r : {running, waiting}) {
    EXPECT_EQ(sink_of(r)->wait().error.code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(engine_->stats().n_running, 0);
  EXPECT_EQ(engine_->stats().cache.n_in_use, 0);
}

TEST_F(EngineTest, DrainFinishesWhatWasAccepted) {
  make(16, 2, 64);
  Request a = request(10, 20);
  ASSERT_TRUE(engine_->submit(a).ok());
  engine_->step();
  engine_->drain();
  EXPECT_EQ(engine_->submit(request(4, 4)).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->idle());
  run_to_rest();
  EXPECT_EQ(sink_of(a)->tokens(), solo(a));
  EXPECT_TRUE(engine_->idle());
}

// Two slots: the first request runs, of the second one choice does; the third waits, and the fourth
// is still in the inbox.
TEST_F(EngineTest, DrainRefusesWhatNeverRan) {
  make(32, 2, 64);
  Request alone = request(10, 20);
  Request first = request(12, 20);
  Request second = request(12, 20);
  first.group = second.group = RequestId(77);
  Request queued = request(14, 20);
  Request arriving = request(16, 20);
  for (const Request& r : {alone, first, second, queued}) ASSERT_TRUE(engine_->submit(r).ok());
  engine_->step();
  EXPECT_EQ(metrics_.requests.n_running(), 2);
  ASSERT_TRUE(engine_->submit(arriving).ok());
  engine_->drain();
  EXPECT_EQ(metrics_.requests.n_waiting(), 3);
  engine_->step();
  for (const Request& r : {queued, arriving}) {
    ASSERT_TRUE(sink_of(r)->finished());
    EXPECT_EQ(sink_of(r)->wait().error.code(), absl::StatusCode::kUnavailable);
  }
  run_to_rest();
  for (const Request& r : {alone, first, second}) EXPECT_EQ(sink_of(r)->tokens(), solo(r));
  EXPECT_EQ(metrics_.requests.n_finished(FinishReason::kError), 2);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(EngineTest, DrainLetsThePreemptedComeBack) {
  make(6, 2, 64);
  Request a = request(30, 48);
  Request b = request(20, 48);
  ASSERT_TRUE(engine_->submit(a).ok());
  ASSERT_TRUE(engine_->submit(b).ok());
  while (engine_->stats().n_preemptions == 0) ASSERT_TRUE(engine_->step());
  EXPECT_EQ(metrics_.requests.n_waiting(), 1);
  engine_->drain();
  run_to_rest();
  EXPECT_EQ(sink_of(a)->tokens(), solo(a));
  EXPECT_EQ(sink_of(b)->tokens(), solo(b));
}

TEST_F(EngineTest, AbortAllTellsEverybodyWhy) {
  make(16, 1, 64);
  Request a = request(10, 20);
  Request b = request(10, 20);
  ASSERT_TRUE(engine_->submit(a).ok());
  ASSERT_TRUE(engine_->submit(b).ok());
  engine_->step();
  engine_->abort_all(absl::UnavailableError("shutting down"));
  run_to_rest();
  for (const Request& r : {a, b}) {
    const TokenEvent end = sink_of(r)->wait();
    EXPECT_EQ(end.reason, FinishReason::kError);
    EXPECT_EQ(base::message_of(end.error), "shutting down");
  }
  EXPECT_TRUE(engine_->idle());
}

TEST_F(EngineTest, StopEndsARunningAnswerAfterItsStep) {
  make(1024, 1, 64);  // more tokens than can be drawn before the stop arrives
  Request running = request(10, 16000);
  Request waiting = request(10, 16000);
  ASSERT_TRUE(engine_->submit(running).ok());
  ASSERT_TRUE(engine_->submit(waiting).ok());
  std::thread engine_thread([&] { engine_->run(); });
  sink_of(running)->wait_for_tokens(1);
  engine_->stop();
  engine_thread.join();
  for (const Request& r : {running, waiting}) EXPECT_TRUE(sink_of(r)->finished());
  EXPECT_LT(sink_of(running)->tokens().size(), 16000U);
}

TEST_F(EngineTest, OnlyThePromptIsComputedWhenNoTokenIsWanted) {
  make(16, 1, 8);
  Request scored = request(20, 0);
  scored.sampling.n_prompt_logprobs = 0;
  Request nothing = request(20, 0);
  ASSERT_TRUE(engine_->submit(scored).ok());
  ASSERT_TRUE(engine_->submit(nothing).ok());
  run_to_rest();
  EXPECT_EQ(sink_of(scored)->wait().reason, FinishReason::kLength);
  EXPECT_EQ(sink_of(nothing)->wait().reason, FinishReason::kLength);
  EXPECT_EQ(runner_->n_rows_run(), 20);
}

// Many threads, a pool that forces preemption, and a third of the clients leaving.
TEST_F(EngineTest, ManyThreadsGetTheirSoloAnswers) {
  constexpr int kClients = 64;
  make(12, 8, 48, kClients);
  std::latch submitted(kClients);  // the pool is too small for those that then start together
  std::thread engine_thread([&] {
    submitted.wait();
    engine_->run();
  });
  std::mutex mutex;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      Request r;
      {
        std::lock_guard lock(mutex);
        r = request(10 + i % 30, 5 + i % 60);
      }
      const auto sink = sink_of(r);
      EXPECT_TRUE(engine_->submit(r).ok());
      submitted.count_down();
      if (i % 3 == 0) {
        sink->wait_for_tokens(static_cast<size_t>(i % 7));
        engine_->cancel(r.id);
        sink->wait();
        return;
      }
      const TokenEvent end = sink->wait();
      EXPECT_EQ(end.reason, FinishReason::kLength);
      EXPECT_EQ(sink->tokens(), solo(r));
    });
  }
  for (std::thread& client : clients) client.join();
  engine_->stop();
  engine_thread.join();
  EXPECT_GE(engine_->stats().n_preemptions, 1);
  EXPECT_EQ(engine_->stats().cache.n_in_use, 0);
  EXPECT_TRUE(engine_->idle());
  cache_->check();
}

}  // namespace
}  // namespace pagoda::engine
