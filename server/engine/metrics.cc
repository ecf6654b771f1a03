#include "server/engine/metrics.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"

namespace pagoda::engine {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using prometheus::Registry;

// From the fastest answer of a small model to the longest that a time limit allows.
const std::vector<double> kRequestSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10,   20,
                                             40,    80,     160,   320,  640};
// Around reading speed finer than elsewhere.
const std::vector<double> kTokenSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015,
                                           0.02,   0.03,  0.04,   0.05,  0.075,  0.1,  0.15,
                                           0.2,    0.3,   0.5,    1,     2.5,    5,    10};
const std::vector<double> kStepSeconds = {
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
    0.05,    0.1,      0.25,    0.5,    1,       2.5,    5,     10,     30,    60};
// Fine around 200 us, which a step should keep below.
const std::vector<double> kKvSeconds = {0.00001, 0.00002, 0.00005, 0.0001, 0.00015, 0.0002, 0.0003,
                                        0.0005,  0.001,   0.002,   0.005,  0.01,    0.1,    1};
const std::vector<double> kTokenCounts = {1,   2,    4,    8,    16,   32,    64,    128,   256,
                                          512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
const std::vector<double> kRows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

prometheus::Counter& counter(Registry& registry, const std::string& name, const std::string& help) {
  return BuildCounter().Name("pagoda_" + name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& gauge(Registry& registry, const std::string& name, const std::string& help) {
  return BuildGauge().Name("pagoda_" + name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& block_gauge(Registry& registry, const std::string& state) {
  return BuildGauge()
      .Name("pagoda_kv_blocks")
      .Help("Blocks of the device pool by state")
      .Register(registry)
      .Add({{"state", state}});
}

prometheus::Histogram& histogram(Registry& registry, const std::string& name,
                                 const std::string& help, const std::vector<double>& bounds) {
  return BuildHistogram().Name("pagoda_" + name).Help(help).Register(registry).Add({}, bounds);
}

prometheus::Histogram& part_histogram(Registry& registry, const std::string& part) {
  return BuildHistogram()
      .Name("pagoda_step_part_seconds")
      .Help(
          "Parts of a step: plan (up to the rows), forward, sample (until the draws are there), "
          "handle (commit, events)")
      .Register(registry)
      .Add({{"part", part}}, kStepSeconds);
}

size_t index_of(FinishReason reason) { return static_cast<size_t>(reason); }

MetricFamily family(const std::string& name, const std::string& help, MetricType type) {
  return {"pagoda_" + name, help, type, {}};
}

// Adds a value under no label or one.
void add_value(MetricFamily& family, int64_t value, const std::string& label = "",
               const std::string& label_value = "") {
  ClientMetric metric;
  if (!label.empty()) metric.label.push_back({label, label_value});
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
      static_cast<double>(value);
  family.metric.push_back(std::move(metric));
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

// ---- RequestCounts ----

int64_t RequestCounts::Counts::n_running() const {
  return std::accumulate(running_by_len.begin(), running_by_len.end(), int64_t{0});
}

int64_t RequestCounts::Counts::n_waiting() const {
  return n_started - n_running() -
         std::accumulate(n_finished.begin(), n_finished.end(), int64_t{0});
}

size_t RequestCounts::len_class(int32_t prompt_len) {
  return static_cast<size_t>(std::ranges::lower_bound(kPromptLens, prompt_len) -
                             kPromptLens.begin());
}

void RequestCounts::start() {
  std::lock_guard lock(mutex_);
  ++counts_.n_started;
}

void RequestCounts::run(int32_t prompt_len) {
  std::lock_guard lock(mutex_);
  ++counts_.running_by_len[len_class(prompt_len)];
}

void RequestCounts::leave(int32_t prompt_len) {
  int64_t& n_running = counts_.running_by_len[len_class(prompt_len)];
  CHECK_GT(n_running, 0);
  --n_running;
}

void RequestCounts::preempt(int32_t prompt_len) {
  std::lock_guard lock(mutex_);
  leave(prompt_len);
}

void RequestCounts::finish_waiting(FinishReason reason) {
  std::lock_guard lock(mutex_);
  ++counts_.n_finished[index_of(reason)];
}

void RequestCounts::finish_running(FinishReason reason, int32_t prompt_len) {
  std::lock_guard lock(mutex_);
  leave(prompt_len);
  ++counts_.n_finished[index_of(reason)];
}

RequestCounts::Counts RequestCounts::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

int64_t RequestCounts::n_started() const { return counts().n_started; }
int64_t RequestCounts::n_finished(FinishReason reason) const {
  return counts().n_finished[index_of(reason)];
}
int64_t RequestCounts::n_running() const { return counts().n_running(); }
int64_t RequestCounts::n_waiting() const { return counts().n_waiting(); }

std::vector<MetricFamily> RequestCounts::Collect() const {
  const Counts now = counts();
  MetricFamily started =
      family("requests_started_total", "Sequences that the engine accepted", MetricType::Counter);
  add_value(started, now.n_started);
  MetricFamily finished =
      family("requests_finished_total", "Sequences that ended, by reason", MetricType::Counter);
  for (const FinishReason reason : kFinishReasons) {
    add_value(finished, now.n_finished[index_of(reason)], "reason",
              std::string(finish_reason_name(reason)));
  }
  MetricFamily running =
      family("requests_running", "Sequences that hold blocks", MetricType::Gauge);
  add_value(running, now.n_running());
  MetricFamily waiting = family(
      "requests_waiting", "Sequences that wait to run, preempted ones included", MetricType::Gauge);
  add_value(waiting, now.n_waiting());
  MetricFamily by_len =
      family("requests_running_by_prompt_len",
             "Of requests_running, those whose prompt has so many tokens", MetricType::Gauge);
  for (size_t i = 0; i <= kPromptLens.size(); ++i) {
    const int32_t low = i == 0 ? 1 : kPromptLens[i - 1] + 1;
    add_value(by_len, now.running_by_len[i], "prompt_len",
              i < kPromptLens.size() ? fmt::format("{}-{}", low, kPromptLens[i])
                                     : fmt::format("{}-", low));
  }
  return {std::move(started), std::move(finished), std::move(running), std::move(waiting),
          std::move(by_len)};
}

// ---- TenantCounts ----

void TenantCounts::add_saved(std::string_view tenant, double prefill_s) {
  const std::string_view name = tenant.empty() ? "default" : tenant;
  std::lock_guard lock(mutex_);
  auto it = saved_s_.find(name);
  if (it == saved_s_.end()) {
    it = saved_s_.try_emplace(saved_s_.size() < kMost ? std::string(name) : "other", 0).first;
  }
  it->second += prefill_s;
}

std::map<std::string, double> TenantCounts::saved_s() const {
  std::lock_guard lock(mutex_);
  return {saved_s_.begin(), saved_s_.end()};
}

std::vector<MetricFamily> TenantCounts::Collect() const {
  MetricFamily saved =
      family("kv_tenant_saved_seconds_total",
             "Prefill time that found tokens have saved, by tenant", MetricType::Counter);
  for (const auto& [tenant, seconds] : saved_s()) {
    ClientMetric& metric = saved.metric.emplace_back();
    metric.label.push_back({"tenant", tenant});
    metric.counter.value = seconds;
  }
  return {std::move(saved)};
}

// ---- BatchedHistogram ----

BatchedHistogram::BatchedHistogram(prometheus::Histogram& shown, std::vector<double> bounds)
    : shown_(shown), bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void BatchedHistogram::add(double value) {
  counts_[static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())] += 1;
  sum_ += value;
  is_empty_ = false;
}

void BatchedHistogram::flush() {
  if (is_empty_) return;
  shown_.ObserveMultiple(counts_, sum_);
  std::ranges::fill(counts_, 0);
  sum_ = 0;
  is_empty_ = true;
}

// ---- Metrics ----

Metrics::Metrics(Registry& r)
    : prompt_tokens(counter(r, "prompt_tokens_total",
                            "Tokens of prompts that came to their first output token")),
      cached_tokens(counter(r, "prompt_tokens_cached_total",
                            "Of prompt_tokens, those whose KV was found in the cache")),
      computed_tokens(counter(r, "computed_tokens_total",
                              "Token positions run through the model, recomputation included")),
      generated_tokens(counter(r, "generation_tokens_total", "Output tokens drawn")),
      preemptions(counter(r, "preemptions_total",
                          "Sequences that gave their blocks back to be computed again")),
      steps(counter(r, "steps_total", "Forward passes")),
      stuck_steps(counter(r, "watchdog_stuck_steps_total",
                          "Times that the engine made no step for longer than --step-timeout "
                          "while there was work")),
      kv_usage_ratio(gauge(r, "kv_usage_ratio",
                           "Blocks in use or promised, of all; 1 is a full pool. Blocks that only "
                           "the prefix cache keeps do not count")),
      kv_blocks_free(block_gauge(r, "free")),
      kv_blocks_cached(block_gauge(r, "cached")),
      kv_blocks_in_use(block_gauge(r, "in_use")),
      kv_blocks_promised(block_gauge(r, "promised")),
      kv_evictions(counter(r, "kv_evicted_blocks_total", "Cached blocks given up for room")),
      kv_engine_seconds(histogram(r, "kv_engine_seconds",
                                  "Processor time of a step on the cache and its transfers, on the "
                                  "engine's thread",
                                  kKvSeconds)),
      queue_seconds(
          histogram(r, "request_queue_seconds", "From arrival to the first step", kRequestSeconds)),
      ttft_seconds(histogram(r, "time_to_first_token_seconds",
                             "From arrival to the first output token", kRequestSeconds)),
      prefill_seconds(histogram(r, "request_prefill_seconds",
                                "From the first step to the first output token", kRequestSeconds)),
      decode_seconds(histogram(r, "request_decode_seconds",
                               "From the first output token to the end, of finished answers",
                               kRequestSeconds)),
      run_seconds(histogram(r, "request_run_seconds",
                            "From the first step to the end, of finished answers",
                            kRequestSeconds)),
      e2e_seconds(histogram(r, "request_seconds", "From arrival to the end, of finished answers",
                            kRequestSeconds)),
      per_token_seconds(histogram(r, "request_time_per_output_token_seconds",
                                  "Mean time between the tokens of a finished answer of two or "
                                  "more",
                                  kTokenSeconds)),
      inter_token_seconds(histogram(r, "inter_token_seconds",
                                    "Between output tokens of one sequence", kTokenSeconds),
                          kTokenSeconds),
      prompt_len(histogram(r, "request_prompt_tokens", "Prompt lengths of finished answers",
                           kTokenCounts)),
      output_len(histogram(r, "request_generation_tokens", "Output lengths of finished answers",
                           kTokenCounts)),
      step_seconds(
          histogram(r, "step_seconds", "A step, from plan to handled results", kStepSeconds)),
      plan_seconds(part_histogram(r, "plan")),
      forward_seconds(part_histogram(r, "forward")),
      sample_seconds(part_histogram(r, "sample")),
      handle_seconds(part_histogram(r, "handle")),
      step_rows(histogram(r, "step_rows", "Token positions that a step computes", kRows)),
      registry_(r) {
  constexpr std::array<const char*, 3> kTiers = {"device", "host", "ssd"};
  for (size_t i = 0; i < kTiers.size(); ++i) {
    prefill_saved_seconds[i] =
        &BuildCounter()
             .Name("pagoda_kv_prefill_saved_seconds_total")
             .Help("What computing the tokens that were found would have taken, by where they lay")
             .Register(r)
             .Add({{"tier", kTiers[i]}});
  }
}

void Metrics::set_cache_config(int32_t block_size, int32_t n_blocks, bool prefix_caching) {
  BuildGauge()
      .Name("pagoda_kv_cache_info")
      .Help("Always 1; the labels say how the KV cache is set up")
      .Register(registry_)
      .Add({{"block_size", std::to_string(block_size)},
            {"blocks", std::to_string(n_blocks)},
            {"prefix_caching", prefix_caching ? "true" : "false"}})
      .Set(1);
}

}  // namespace pagoda::engine
