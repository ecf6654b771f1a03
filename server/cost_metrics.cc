#include "server/cost_metrics.h"

#include <utility>

namespace pagoda {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::vector<MetricFamily> CostMetrics::Collect() const {
  const double cost = per_second_ * static_cast<double>(clock_.now_us() - begin_us_) * 1e-6;
  const double n_tokens = metrics_.prompt_tokens.Value() + metrics_.generated_tokens.Value();
  MetricFamily total{
      "pagoda_cost_total", "What the machine has cost since the start", MetricType::Counter, {}};
  total.metric.emplace_back().counter.value = cost;
  MetricFamily per_tokens{
      "pagoda_cost_per_1k_tokens",
      "That for each thousand tokens of prompts and answers; 0: there were none",
      MetricType::Gauge,
      {}};
  per_tokens.metric.emplace_back().gauge.value = n_tokens > 0 ? cost / n_tokens * 1000 : 0;
  MetricFamily saved{"pagoda_cost_saved_total",
                     "What the prefill time would have cost that found tokens have saved",
                     MetricType::Counter,
                     {}};
  for (const auto& [tenant, seconds] : metrics_.tenants.saved_s()) {
    prometheus::ClientMetric& metric = saved.metric.emplace_back();
    metric.label.push_back({"tenant", tenant});
    metric.counter.value = seconds * per_second_;
  }
  return {std::move(total), std::move(per_tokens), std::move(saved)};
}

}  // namespace pagoda
