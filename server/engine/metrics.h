// What the engine counts. Any thread may read; the engine thread writes, except where it says
// otherwise. Nothing here waits for long: a scrape holds each lock for a copy of a few numbers.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/engine/request.h"

namespace pagoda::engine {

inline constexpr std::array<FinishReason, 4> kFinishReasons = {
    FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError};

// Sequences by state. A scrape sees one moment of it, in which
//
//   started = finished + running + waiting
//
// holds, whatever the engine is in the middle of. Any thread.
class RequestCounts final : public prometheus::Collectable {
 public:
  // An accepted sequence waits, from the inbox on; then
  //   waiting ──run──▶ running ──preempt──▶ waiting, and both ──finish──▶ finished.
  void start();
  void run(int32_t prompt_len);
  void preempt(int32_t prompt_len);
  void finish_waiting(FinishReason reason);
  void finish_running(FinishReason reason, int32_t prompt_len);

  int64_t n_started() const;
  int64_t n_finished(FinishReason reason) const;
  int64_t n_running() const;
  int64_t n_waiting() const;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  // Lengths of prompts up to each of these, and a last class of the longer ones.
  static constexpr std::array<int32_t, 5> kPromptLens = {128, 512, 2048, 8192, 32768};
  struct Counts {
    int64_t n_started = 0;
    std::array<int64_t, kFinishReasons.size()> n_finished{};       // by FinishReason
    std::array<int64_t, kPromptLens.size() + 1> running_by_len{};  // by class of prompt length
    int64_t n_running() const;
    int64_t n_waiting() const;
  };
  static size_t len_class(int32_t prompt_len);
  void leave(int32_t prompt_len);  // with mutex_ held: one fewer runs
  Counts counts() const;

  mutable std::mutex mutex_;
  Counts counts_;  // guarded by mutex_
};

// Prefill seconds saved, by tenant; of the first kMost tenants, and "other" for the rest, since
// clients make up names. Any thread.
class TenantCounts final : public prometheus::Collectable {
 public:
  void add_saved(std::string_view tenant, double prefill_s);
  // By tenant; unnamed requests are of "default".
  std::map<std::string, double> saved_s() const;

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  static constexpr size_t kMost = 100;
  mutable std::mutex mutex_;
  std::map<std::string, double, std::less<>> saved_s_;  // guarded by mutex_
};

// A histogram that is filled without a lock, by one thread, and becomes visible at flush(). For
// what is observed for every token.
class BatchedHistogram {
 public:
  BatchedHistogram(prometheus::Histogram& shown, std::vector<double> bounds);
  void add(double value);
  void flush();

 private:
  prometheus::Histogram& shown_;
  const std::vector<double> bounds_;
  std::vector<double> counts_;  // [bounds_.size() + 1]
  double sum_ = 0;
  bool is_empty_ = true;
};

// Owned by the registry that it was made on, which must live longer; `requests` and
// `tenants` are not in the registry and are collected beside it.
struct Metrics {
  explicit Metrics(prometheus::Registry& registry);
  // What never changes, shown as labels.
  void set_cache_config(int32_t block_size, int32_t n_blocks, bool prefix_caching);

  RequestCounts requests;
  TenantCounts tenants;

  prometheus::Counter& prompt_tokens;    // of prompts whose first token came
  prometheus::Counter& cached_tokens;    // of those, found in the cache
  prometheus::Counter& computed_tokens;  // rows run, recomputation included
  prometheus::Counter& generated_tokens;
  prometheus::Counter& preemptions;
  prometheus::Counter& steps;
  prometheus::Counter& stuck_steps;

  prometheus::Gauge& kv_usage_ratio;
  prometheus::Gauge& kv_blocks_free;
  prometheus::Gauge& kv_blocks_cached;
  prometheus::Gauge& kv_blocks_in_use;
  prometheus::Gauge& kv_blocks_promised;
  prometheus::Counter& kv_evictions;

  prometheus::Histogram& kv_engine_seconds;                     // of steps
  std::array<prometheus::Counter*, 3> prefill_saved_seconds{};  // by TierKind

  // Of sequences. A time is observed when its end comes: a sequence that never came to its first
  // token is in none of them but queue_seconds, and one that was aborted or failed not in those
  // that need its end.
  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& ttft_seconds;
  prometheus::Histogram& prefill_seconds;
  prometheus::Histogram& decode_seconds;
  prometheus::Histogram& run_seconds;
  prometheus::Histogram& e2e_seconds;
  prometheus::Histogram& per_token_seconds;
  BatchedHistogram inter_token_seconds;
  prometheus::Histogram& prompt_len;
  prometheus::Histogram& output_len;

  // Of steps.
  prometheus::Histogram& step_seconds;
  prometheus::Histogram& plan_seconds;
  prometheus::Histogram& forward_seconds;
  prometheus::Histogram& sample_seconds;
  prometheus::Histogram& handle_seconds;
  prometheus::Histogram& step_rows;

 private:
  prometheus::Registry& registry_;
};

}  // namespace pagoda::engine
