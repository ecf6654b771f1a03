// What /metrics says of money, where the operator has told what the machine costs.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "server/engine/metrics.h"

namespace pagoda {

// Amounts are in the currency of `per_hour`, from the moment this was made. Borrows the rest; any
// thread.
class CostMetrics final : public prometheus::Collectable {
 public:
  CostMetrics(double per_hour, const engine::Metrics& metrics, const base::Clock& clock)
      : per_second_(per_hour / 3600), metrics_(metrics), clock_(clock), begin_us_(clock.now_us()) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const double per_second_;
  const engine::Metrics& metrics_;
  const base::Clock& clock_;
  const int64_t begin_us_;
};

}  // namespace pagoda
