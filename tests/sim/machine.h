// A process in the simulator: everything that a kill takes with it. The disk and the clock stay.
#pragma once

#include <prometheus/registry.h>

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/disk.h"
#include "base/pumped_io_queue.h"
#include "cache/kv_cache.h"
#include "server/engine/engine.h"
#include "tests/sim/hash_runner.h"

namespace pagoda::sim {

struct MachineConfig {
  HashRunnerConfig runner;
  cache::KvCacheConfig cache;  // without its tiers, but with their policies
  engine::EngineConfig engine;
  int32_t host_blocks = 0;  // 0: no host tier
  bool has_ssd = false;
  int64_t ssd_bytes = 0;
  int64_t ssd_segment_bytes = 0;
};

struct Machine {
  Machine(const MachineConfig& config, base::Disk& disk, const base::Clock& clock);
  ~Machine();

  // In the order of who uses whom.
  prometheus::Registry registry;
  engine::Metrics metrics;
  HashRunner runner;
  base::PumpedIoQueue queue;
  std::unique_ptr<cache::HostTier> host;
  std::unique_ptr<cache::SsdTier> ssd;
  std::unique_ptr<cache::TransferEngine> transfer;
  cache::KvCache cache;
  engine::Engine engine;

 private:
  cache::KvCacheConfig make_tiers(const MachineConfig& config, base::Disk& disk,
                                  const base::Clock& clock);
};

}  // namespace pagoda::sim
