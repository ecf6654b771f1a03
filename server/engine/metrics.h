// What the engine counts. prometheus-cpp's objects are safe from any thread; the engine thread
// writes them and the HTTP listener reads them.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>

#include "server/engine/request.h"

namespace pagoda::engine {

// Owned by the registry that it was made on, which must live longer.
struct Metrics {
  explicit Metrics(prometheus::Registry& registry);

  prometheus::Counter& started;
  std::array<prometheus::Counter*, 4> finished;  // by FinishReason
  prometheus::Gauge& running;
  prometheus::Gauge& waiting;

  prometheus::Counter& prompt_tokens;    // of prompts whose first token came
  prometheus::Counter& cached_tokens;    // of those, found in the cache
  prometheus::Counter& computed_tokens;  // rows run, recomputation included
  prometheus::Counter& generated_tokens;
  prometheus::Counter& preemptions;
  prometheus::Counter& steps;

  prometheus::Gauge& kv_blocks_free;
  prometheus::Gauge& kv_blocks_cached;
  prometheus::Gauge& kv_blocks_in_use;
  prometheus::Gauge& kv_blocks_promised;
  prometheus::Counter& kv_evictions;

  prometheus::Histogram& queue_seconds;
  prometheus::Histogram& ttft_seconds;
  prometheus::Histogram& inter_token_seconds;
  prometheus::Histogram& e2e_seconds;
  prometheus::Histogram& step_seconds;
};

}  // namespace pagoda::engine
