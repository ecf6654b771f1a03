#include "server/engine/metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "cache/kv_cache.h"
#include "server/engine/engine.h"
#include "tests/sim/hash_runner.h"

namespace pagoda::engine {
namespace {

class NoSink final : public TokenSink {
 public:
  void push(TokenEvent&& event) override { (void)event; }
};

// "name" or "name{value of its label}" to what is shown.
std::map<std::string, double> values(const prometheus::Collectable& source) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : source.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string name = family.name;
      if (!metric.label.empty()) name += "{" + metric.label[0].value + "}";
      values[name] = family.type == prometheus::MetricType::Counter ? metric.counter.value
                     : family.type == prometheus::MetricType::Gauge
                         ? metric.gauge.value
                         : static_cast<double>(metric.histogram.sample_count);
    }
  }
  return values;
}

TEST(RequestCountsTest, EverySequenceIsSomewhere) {
  RequestCounts counts;
  for (int i = 0; i < 4; ++i) counts.start();
  counts.run(128);
  counts.run(129);
  counts.run(100'000);
  counts.preempt(129);
  counts.finish_running(FinishReason::kLength, 128);
  counts.finish_waiting(FinishReason::kAbort);
  const auto shown = values(counts);
  EXPECT_EQ(shown.at("pagoda_requests_started_total"), 4);
  EXPECT_EQ(shown.at("pagoda_requests_finished_total{length}"), 1);
  EXPECT_EQ(shown.at("pagoda_requests_finished_total{abort}"), 1);
  EXPECT_EQ(shown.at("pagoda_requests_finished_total{stop}"), 0);
  EXPECT_EQ(shown.at("pagoda_requests_running"), 1);
  EXPECT_EQ(shown.at("pagoda_requests_waiting"), 1);
  EXPECT_EQ(shown.at("pagoda_requests_running_by_prompt_len{1-128}"), 0);
  EXPECT_EQ(shown.at("pagoda_requests_running_by_prompt_len{129-512}"), 0);
  EXPECT_EQ(shown.at("pagoda_requests_running_by_prompt_len{32769-}"), 1);
}

// Each scrape adds up, while threads come and go.
TEST(RequestCountsTest, AScrapeIsOneMoment) {
  RequestCounts counts;
  std::atomic<bool> over{false};
  std::thread engine([&] {
    for (int i = 0; i < 20'000; ++i) {
      counts.start();
      if (i % 3 == 0) {
        counts.finish_waiting(FinishReason::kAbort);
        continue;
      }
      counts.run(i);
      counts.finish_running(FinishReason::kStop, i);
    }
    over.store(true);
  });
  while (!over.load()) {
    const auto shown = values(counts);
    double finished = 0;
    for (const FinishReason reason : kFinishReasons) {
      finished += shown.at("pagoda_requests_finished_total{" +
                           std::string(finish_reason_name(reason)) + "}");
    }
    const double live = shown.at("pagoda_requests_running") + shown.at("pagoda_requests_waiting");
    ASSERT_EQ(shown.at("pagoda_requests_started_total"), finished + live);
    ASSERT_GE(shown.at("pagoda_requests_waiting"), 0);
    ASSERT_LE(live, 1);
  }
  engine.join();
}

TEST(BatchedHistogramTest, ShowsAtFlushWhatObserveWouldHave) {
  prometheus::Histogram shown({1, 2, 4});
  prometheus::Histogram wanted({1, 2, 4});
  BatchedHistogram batched(shown, {1, 2, 4});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 4.0, 4.1, 100.0}) {
    batched.add(value);
    wanted.Observe(value);
  }
  EXPECT_EQ(shown.Collect().histogram.sample_count, 0U);
  batched.flush();
  batched.flush();
  const auto got = shown.Collect().histogram;
  const auto want = wanted.Collect().histogram;
  EXPECT_EQ(got.sample_count, want.sample_count);
  EXPECT_DOUBLE_EQ(got.sample_sum, want.sample_sum);
  ASSERT_EQ(got.bucket.size(), want.bucket.size());
  for (size_t i = 0; i < want.bucket.size(); ++i) {
    EXPECT_EQ(got.bucket[i].cumulative_count, want.bucket[i].cumulative_count) << i;
  }
}

class EngineMetricsTest : public testing::Test {
 protected:
  EngineMetricsTest() {
    sim::HashRunnerConfig config;
    config.n_blocks = 16;
    config.n_slots = 2;
    config.max_rows = 32;
    runner_ = std::make_unique<sim::HashRunner>(config);
    cache::KvCacheConfig cache;
    cache.n_blocks = 16;
    cache_ = std::make_unique<cache::KvCache>(cache);
    EngineConfig engine;
    engine.max_num_seqs = 2;
    engine.max_num_batched_tokens = 32;
    engine.max_model_len = cache_->max_tokens();
    engine_ = std::make_unique<Engine>(engine, *runner_, *cache_, clock_, metrics_);
  }
  Request request(uint64_t id, int32_t prompt_len, int32_t max_tokens) {
    Request request;
    request.id = RequestId(id);
    request.prompt.assign(static_cast<size_t>(prompt_len), static_cast<int32_t>(id));
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.arrival_us = clock_.now_us();
    request.sink = std::make_shared<NoSink>();
    return request;
  }

  base::FakeClock clock_;
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  std::unique_ptr<sim::HashRunner> runner_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineMetricsTest, AFinishedAnswerIsInEachHistogramOnce) {
  ASSERT_TRUE(engine_->submit(request(1, 40, 5)).ok());  // two steps of prompt
  EXPECT_EQ(metrics_.requests.n_waiting(), 1);           // it is in the inbox
  while (engine_->step()) clock_.advance_us(1000);
  const auto shown = values(registry_);
  for (const char* name :
       {"time_to_first_token_seconds", "request_queue_seconds", "request_prefill_seconds",
        "request_decode_seconds", "request_run_seconds", "request_seconds",
        "request_time_per_output_token_seconds", "request_prompt_tokens",
        "request_generation_tokens"}) {
    EXPECT_EQ(shown.at(std::string("pagoda_") + name), 1) << name;
  }
  EXPECT_EQ(shown.at("pagoda_inter_token_seconds"), 4);
  for (const char* name :
       {"step_seconds", "step_rows", "step_part_seconds{plan}", "step_part_seconds{forward}",
        "step_part_seconds{sample}", "step_part_seconds{handle}", "steps_total"}) {
    EXPECT_EQ(shown.at(std::string("pagoda_") + name), 6) << name;
  }
  EXPECT_EQ(shown.at("pagoda_prompt_tokens_total"), 40);
  EXPECT_EQ(shown.at("pagoda_computed_tokens_total"), 44);
  EXPECT_EQ(shown.at("pagoda_generation_tokens_total"), 5);
  EXPECT_EQ(shown.at("pagoda_kv_usage_ratio"), 0);
}

// A mass abort, and then nothing comes any more.
TEST_F(EngineMetricsTest, AbortedSequencesLeaveNoSamplesAndNoGauges) {
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(engine_->submit(request(i, 60, 20)).ok());
  engine_->step();  // the first prompt is half computed, the last two have never run
  EXPECT_EQ(metrics_.requests.n_running(), 1);
  EXPECT_GT(metrics_.kv_usage_ratio.Value(), 0);
  for (uint64_t i = 1; i <= 4; ++i) engine_->cancel(RequestId(i));
  EXPECT_TRUE(engine_->step());
  EXPECT_EQ(metrics_.requests.n_running(), 0);
  EXPECT_EQ(metrics_.requests.n_waiting(), 0);
  EXPECT_EQ(metrics_.requests.n_finished(FinishReason::kAbort), 4);
  EXPECT_EQ(metrics_.kv_usage_ratio.Value(), 0);
  const auto shown = values(registry_);
  EXPECT_EQ(shown.at("pagoda_request_queue_seconds"), 1);
  for (const char* name :
       {"time_to_first_token_seconds", "inter_token_seconds", "request_prefill_seconds",
        "request_decode_seconds", "request_run_seconds", "request_seconds",
        "request_time_per_output_token_seconds", "request_prompt_tokens",
        "request_generation_tokens", "prompt_tokens_total"}) {
    EXPECT_EQ(shown.at(std::string("pagoda_") + name), 0) << name;
  }
}

}  // namespace
}  // namespace pagoda::engine
