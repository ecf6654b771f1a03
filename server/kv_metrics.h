// What /metrics says of the KV cache and the tiers below the device.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "server/engine/engine.h"
#include "server/kv_tier_stack.h"

namespace pagoda {

// Borrows both; no tiers: null. Any thread; each scrape sees the numbers of its moment.
class KvMetrics final : public prometheus::Collectable {
 public:
  KvMetrics(const KvTierStack* tiers, const engine::Engine& engine)
      : tiers_(tiers), engine_(engine) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const KvTierStack* const tiers_;
  const engine::Engine& engine_;
};

}  // namespace pagoda
