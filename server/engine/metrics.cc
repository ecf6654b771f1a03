#include "server/engine/metrics.h"

#include <string>
#include <vector>

namespace pagoda::engine {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Registry;

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
                                 const std::string& help) {
  const std::vector<double> bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                      0.5,   1,      2.5,   5,    10,    30,   60,  300};
  return BuildHistogram().Name("pagoda_" + name).Help(help).Register(registry).Add({}, bounds);
}

std::array<prometheus::Counter*, 4> finished_counters(Registry& registry) {
  auto& family = BuildCounter()
                     .Name("pagoda_requests_finished_total")
                     .Help("Sequences that ended, by reason")
                     .Register(registry);
  std::array<prometheus::Counter*, 4> counters{};
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError}) {
    counters[static_cast<size_t>(reason)] =
        &family.Add({{"reason", std::string(finish_reason_name(reason))}});
  }
  return counters;
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

Metrics::Metrics(Registry& registry)
    : started(counter(registry, "requests_started_total", "Sequences that the engine accepted")),
      finished(finished_counters(registry)),
      running(gauge(registry, "requests_running", "Sequences that hold blocks")),
      waiting(gauge(registry, "requests_waiting", "Sequences that wait, preempted ones included")),
      prompt_tokens(counter(registry, "prompt_tokens_total",
                            "Tokens of prompts that came to their first output token")),
      cached_tokens(counter(registry, "prompt_tokens_cached_total",
                            "Of prompt_tokens, those whose KV was found in the cache")),
      computed_tokens(counter(registry, "computed_tokens_total",
                              "Token positions run through the model, recomputation included")),
      generated_tokens(counter(registry, "generation_tokens_total", "Output tokens drawn")),
      preemptions(counter(registry, "preemptions_total",
                          "Sequences that gave their blocks back to be computed again")),
      steps(counter(registry, "steps_total", "Forward passes")),
      kv_blocks_free(block_gauge(registry, "free")),
      kv_blocks_cached(block_gauge(registry, "cached")),
      kv_blocks_in_use(block_gauge(registry, "in_use")),
      kv_blocks_promised(block_gauge(registry, "promised")),
      kv_evictions(counter(registry, "kv_evicted_blocks_total", "Cached blocks given up for room")),
      queue_seconds(histogram(registry, "request_queue_seconds", "From arrival to the first step")),
      ttft_seconds(histogram(registry, "time_to_first_token_seconds",
                             "From arrival to the first output token")),
      inter_token_seconds(
          histogram(registry, "inter_token_seconds", "Between output tokens of one sequence")),
      e2e_seconds(histogram(registry, "request_seconds", "From arrival to the end of the answer")),
      step_seconds(histogram(registry, "step_seconds", "A step, from plan to handled results")) {}

}  // namespace pagoda::engine
