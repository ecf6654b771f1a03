#include "tests/sim/machine.h"

#include <utility>

#include "base/check.h"

namespace pagoda::sim {

Machine::Machine(const MachineConfig& config, base::Disk& disk, const base::Clock& clock)
    : metrics(registry),
      runner(config.runner),
      cache(make_tiers(config, disk, clock), &clock),
      engine(config.engine, runner, cache, clock, metrics) {}

// Whatever is still under way ends first: the tiers wait for it.
Machine::~Machine() { queue.pump_all(); }

cache::KvCacheConfig Machine::make_tiers(const MachineConfig& config, base::Disk& disk,
                                         const base::Clock& clock) {
  cache::KvCacheConfig made = config.cache;
  if (config.host_blocks > 0) {
    auto tier =
        cache::HostTier::create({.capacity_bytes = config.host_blocks * runner.block_bytes(),
                                 .block_bytes = runner.block_bytes()},
                                queue);
    CHECK(tier.ok());
    host = *std::move(tier);
  }
  if (config.has_ssd) {
    cache::SsdTierOptions options;
    options.capacity_bytes = config.ssd_bytes;
    options.daily_bytes = 64 * config.ssd_bytes;
    options.reserve_bytes = 0;
    options.segment_bytes = config.ssd_segment_bytes;
    options.block_bytes = runner.block_bytes();
    options.block_size = config.runner.block_size;
    auto tier = cache::SsdTier::open(options, disk, queue, clock);
    // A disk that fails now is a server without the tier.
    if (tier.ok()) ssd = *std::move(tier);
  }
  if (host == nullptr && ssd == nullptr) return made;
  transfer = std::make_unique<cache::TransferEngine>(
      cache::TransferOptions{}, cache::DeviceMemory{runner.pool_bytes(), runner.block_bytes()},
      host.get(), ssd.get(), clock, nullptr, &queue);
  made.tiers.transfer = transfer.get();
  made.tiers.host = host.get();
  made.tiers.ssd = ssd.get();
  return made;
}

}  // namespace pagoda::sim
