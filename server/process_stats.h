// What the system says of this process, under the names that Prometheus' clients share.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace pagoda {

// Read from /proc at each scrape; what can't be read is left out. Any thread. The process counts as
// started when this was made.
class ProcessStats final : public prometheus::Collectable {
 public:
  ProcessStats();
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const double start_s_;  // since 1970
};

}  // namespace pagoda
