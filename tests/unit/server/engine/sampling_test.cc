// What requests ask of the sampler, through the whole engine: seeds, penalties, bans, stop tokens
// and prompt log probabilities, alone, in batches, chunked and preempted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "server/engine/engine.h"
#include "tests/unit/server/engine/position_runner.h"

namespace pagoda::engine {
namespace {

// All events of an answer, and how many came together.
class EventSink final : public TokenSink {
 public:
  void push(TokenEvent&& event) override { push_together({&event, 1}); }
  void push_together(std::span<TokenEvent> events) override {
    last_push = events.size();
    for (TokenEvent& event : events) {
      ASSERT_FALSE(finished());
      if (event.kind == TokenEvent::Kind::kToken) tokens.push_back(event.result.token);
      if (event.kind == TokenEvent::Kind::kPrompt) prompt.push_back(event.result);
      end = std::move(event);
    }
  }
  bool finished() const { return end.kind == TokenEvent::Kind::kFinish; }

  std::vector<TokenId> tokens;
  std::vector<ops::SampleResult> prompt;
  TokenEvent end;
  size_t last_push = 0;
};

class SamplingTest : public testing::Test {
 protected:
  void make(int32_t n_blocks, int32_t max_rows) {
    runner_ = std::make_unique<PositionRunner>(8, max_rows);
    cache_ = std::make_unique<cache::KvCache>(cache::KvCacheConfig{.n_blocks = n_blocks});
    EngineConfig config;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = max_rows;
    config.max_model_len = cache_->max_tokens();
    config.end_ids = {1};
    engine_ = std::make_unique<Engine>(config, *runner_, *cache_, clock_, metrics_);
  }

  static Request request(int32_t prompt_len, int32_t max_tokens, uint64_t seed) {
    Request request;
    for (int32_t i = 0; i < prompt_len; ++i) {
      request.prompt.push_back(static_cast<int32_t>((seed + static_cast<uint64_t>(i * i)) % 64));
    }
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.seed = seed;
    return request;
  }
  std::shared_ptr<EventSink> submit(Request request) {
    request.id = RequestId(++n_requests_);
    request.arrival_us = clock_.now_us();
    clock_.advance_us(1);
    auto sink = std::make_shared<EventSink>();
    request.sink = sink;
    const absl::Status status = engine_->submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
    return sink;
  }
  bool step() {
    const bool worked = engine_->step();
    cache_->check();
    return worked;
  }
  std::shared_ptr<EventSink> run_alone(const Request& request) {
    make(64, 256);
    const auto sink = submit(request);
    while (step()) {
    }
    return sink;
  }

  base::FakeClock clock_;
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  std::unique_ptr<PositionRunner> runner_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<Engine> engine_;
  uint64_t n_requests_ = 0;
};

void expect_same_results(std::span<const ops::SampleResult> got,
                         std::span<const ops::SampleResult> wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].token, wanted[i].token);
    EXPECT_EQ(got[i].logprob, wanted[i].logprob);
    EXPECT_EQ(got[i].rank, wanted[i].rank);
    EXPECT_EQ(got[i].n_top, wanted[i].n_top);
  }
}

SamplingParams penalised(SamplingParams sampling) {
  sampling.repetition_penalty = 1.3F;
  sampling.frequency_penalty = 0.25F;
  sampling.presence_penalty = 0.5F;
  sampling.bad_words = {{7}, {3, 5}};
  return sampling;
}

// Preempted once in the middle of its prompt and once in the middle of its answer.
TEST_F(SamplingTest, PreemptionDoesNotRestartASeededSampler) {
  for (const bool with_penalties : {false, true}) {
    Request a = request(60, 48, 1234);
    if (with_penalties) a.sampling = penalised(a.sampling);
    const std::shared_ptr<EventSink> alone = run_alone(a);
    ASSERT_EQ(alone->tokens.size(), 48U);

    make(10, 4);  // such a request takes 7 blocks
    Request urgent = request(60, 48, 99);
    urgent.priority = 1;
    const auto first = submit(urgent);
    while (first->tokens.size() < 25) step();
    const auto sink = submit(a);
    std::shared_ptr<EventSink> second;
    std::vector<size_t> preempted_at;  // how long its answer was
    for (int64_t n_seen = 0; !sink->finished();) {
      ASSERT_TRUE(step());
      if (engine_->stats().n_preemptions > n_seen) preempted_at.push_back(sink->tokens.size());
      n_seen = engine_->stats().n_preemptions;
      if (second == nullptr && sink->tokens.size() == 10) second = submit(urgent);
    }
    ASSERT_GE(preempted_at.size(), 2U);
    EXPECT_EQ(preempted_at.front(), 0U);
    EXPECT_GT(preempted_at.back(), 0U);

    EXPECT_EQ(sink->tokens, alone->tokens);
    EXPECT_EQ(sink->end.usage.prompt_tokens, 60);
    EXPECT_EQ(sink->end.usage.completion_tokens, 48);
    std::vector<int64_t> positions;
    for (const PositionRunner::DrawnAt& draw : runner_->draws) {
      if (draw.seed == 1234) positions.push_back(draw.position);
    }
    ASSERT_EQ(positions.size(), 48U);
    for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(positions[static_cast<size_t>(i)], i);
  }
}

TEST_F(SamplingTest, TwoOfTheSameSeedInABatchEqualTheirSoloRuns) {
  Request plain = request(30, 48, 1234);
  Request other = plain;
  other.prompt[29] = 2;
  other.sampling = penalised(other.sampling);
  const std::vector<TokenId> plain_alone = run_alone(plain)->tokens;
  const std::vector<TokenId> other_alone = run_alone(other)->tokens;
  EXPECT_NE(plain_alone, other_alone);
  make(64, 256);
  const auto a = submit(plain);
  const auto b = submit(plain);
  const auto c = submit(other);
  while (step()) {
  }
  EXPECT_EQ(a->tokens, plain_alone);
  EXPECT_EQ(b->tokens, plain_alone);
  EXPECT_EQ(c->tokens, other_alone);
}

// The same request four times: cold, found in the cache, sharing one block, without a cache.
TEST_F(SamplingTest, PenaltiesSeeThePromptCachedOrNot) {
  Request request = SamplingTest::request(50, 16, 5);
  request.sampling.temperature = 0;
  request.sampling.repetition_penalty = 1.8F;
  const std::vector<TokenId> cold = run_alone(request)->tokens;
  const auto again = submit(request);
  while (step()) {
  }
  EXPECT_EQ(again->end.usage.cached_tokens, 49);
  EXPECT_EQ(again->tokens, cold);

  make(64, 256);
  Request stem = request;
  stem.prompt.resize(20);
  submit(stem);
  while (step()) {
  }
  const auto partly = submit(request);
  while (step()) {
  }
  EXPECT_EQ(partly->end.usage.cached_tokens, 20);
  EXPECT_EQ(partly->tokens, cold);
  request.sampling.repetition_penalty = 1;
  EXPECT_NE(run_alone(request)->tokens, cold);
}

TEST_F(SamplingTest, AllowedIdsAndBadWordsHold) {
  Request request = SamplingTest::request(20, 200, 6);
  request.prompt.back() = 4;
  request.sampling.allowed_ids = {4, 8, 15};
  request.sampling.bad_words = {{4, 4}, {8, 15, 8}, {15, 8}};
  const std::vector<TokenId> tokens = run_alone(request)->tokens;
  ASSERT_EQ(tokens.size(), 200U);
  EXPECT_NE(tokens[0], 4);
  for (size_t i = 1; i < tokens.size(); ++i) {
    EXPECT_TRUE(std::ranges::binary_search(request.sampling.allowed_ids, tokens[i]));
    EXPECT_FALSE(tokens[i - 1] == 4 && tokens[i] == 4);
    EXPECT_FALSE(tokens[i - 1] == 15 && tokens[i] == 8);
  }
}

TEST_F(SamplingTest, ARequestThatBansEveryTokenIsRefused) {
  make(16, 64);
  Request request = SamplingTest::request(4, 8, 7);
  request.sampling.allowed_ids = {1, 5};
  request.sampling.bad_words = {{5}};
  request.sink = std::make_shared<EventSink>();
  EXPECT_TRUE(engine_->submit(request).ok());
  request.sampling.min_tokens = 1;  // and 1 ends the answer
  EXPECT_EQ(engine_->submit(request).code(), absl::StatusCode::kInvalidArgument);
  request.sampling.max_tokens = 0;
  request.sink = std::make_shared<EventSink>();
  EXPECT_TRUE(engine_->submit(request).ok());
}

TEST_F(SamplingTest, AnAnswerThatNoTokenMayContinueSaysSo) {
  Request request = SamplingTest::request(4, 8, 8);
  request.sampling.allowed_ids = {5, 6};
  request.sampling.bad_words = {{5, 5}, {5, 6}, {6, 6}};
  const auto sink = run_alone(request);
  EXPECT_EQ(sink->end.reason, FinishReason::kError);
  EXPECT_EQ(sink->end.error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sink->tokens.back(), 5);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(SamplingTest, TheEndNamesTheStopToken) {
  Request request = SamplingTest::request(20, 30, 9);
  const auto full = run_alone(request);
  EXPECT_EQ(full->end.reason, FinishReason::kLength);
  EXPECT_EQ(full->end.stop_token, -1);
  EXPECT_EQ(full->last_push, 2U);  // the last token and the end
  request.sampling.stop_ids = {full->tokens[12]};
  const auto stopped = run_alone(request);
  EXPECT_EQ(stopped->end.reason, FinishReason::kStop);
  EXPECT_EQ(stopped->end.stop_token, full->tokens[12]);
  EXPECT_LE(stopped->tokens.size(), 12U);
  EXPECT_EQ(std::ranges::count(stopped->tokens, full->tokens[12]), 0);
}

// Every token of the prompt but the first, once, in order, with its own number of alternatives.
void expect_prompt_report(const EventSink& sink, const Request& request) {
  ASSERT_EQ(sink.prompt.size(), request.prompt.size() - 1);
  for (size_t i = 0; i < sink.prompt.size(); ++i) {
    const ops::SampleResult& result = sink.prompt[i];
    const std::vector<float> logits = PositionRunner::logits_at(static_cast<int32_t>(i));
    const TokenId token = request.prompt[i + 1];
    const float logit = logits[static_cast<size_t>(token)];
    double sum = 0;
    for (const float other : logits) sum += std::exp(double{other});
    EXPECT_EQ(result.token, token);
    EXPECT_NEAR(result.logprob, logit - std::log(sum), 1e-4);
    EXPECT_EQ(result.rank, 1 + std::ranges::count_if(logits, [&](float x) { return x > logit; }));
    EXPECT_EQ(result.n_top, request.sampling.n_prompt_logprobs);
  }
}

TEST_F(SamplingTest, PromptLogprobsInChunksBatchesAndChoices) {
  Request request = SamplingTest::request(60, 12, 10);
  request.sampling = penalised(request.sampling);
  request.sampling.n_logprobs = 1;
  request.sampling.n_prompt_logprobs = 3;
  Request second = request;
  second.choice = 1;
  const auto first_alone = run_alone(request);
  const auto second_alone = run_alone(second);
  expect_prompt_report(*first_alone, request);
  make(64, 7);
  Request other = SamplingTest::request(60, 12, 10);  // the same prompt, for the cache
  submit(other);
  const auto a = submit(request);
  const auto b = submit(second);
  while (step()) {
  }
  expect_prompt_report(*a, request);
  expect_same_results(a->prompt, first_alone->prompt);
  expect_same_results(b->prompt, first_alone->prompt);
  EXPECT_EQ(a->tokens, first_alone->tokens);
  EXPECT_EQ(b->tokens, second_alone->tokens);
  EXPECT_NE(a->tokens, b->tokens);
}

TEST_F(SamplingTest, PromptLogprobsAreSentOnceWhateverIsPreempted) {
  Request request = SamplingTest::request(60, 48, 11);
  request.sampling.n_prompt_logprobs = 0;
  const auto alone = run_alone(request);
  make(10, 4);
  Request urgent = SamplingTest::request(60, 48, 99);
  urgent.priority = 1;
  const auto first = submit(urgent);
  while (first->tokens.size() < 25) step();
  const auto sink = submit(request);
  size_t n_reported = 0;  // when it was preempted
  while (!first->finished()) {
    step();
    if (engine_->stats().n_preemptions == 0) n_reported = sink->prompt.size();
  }
  EXPECT_GT(n_reported, 0U);
  EXPECT_LT(n_reported, 59U);
  EXPECT_EQ(engine_->stats().n_preemptions, 1);
  while (sink->tokens.size() < 10) step();
  submit(urgent);
  while (step()) {
  }
  EXPECT_GE(engine_->stats().n_preemptions, 2);
  expect_prompt_report(*sink, request);
  EXPECT_EQ(sink->tokens, alone->tokens);
}

}  // namespace
}  // namespace pagoda::engine
