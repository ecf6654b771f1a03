// Moves blocks between the device and the tiers below it, while the engine goes on.
//
//   engine thread ── restore, offload ──▶ [jobs] ──▶ tier.get / tier.put on the tier's threads
//        ▲                                                      │
//        └───────────────── poll() ◀── [what is done] ◀─────────┘   (and wake(), so that it looks)
//
// It knows blocks and keys, no tree: who may write or free a block meanwhile is the caller's matter
// (KvCache pins both ends until poll() has reported them).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/io_queue.h"
#include "cache/latency_counts.h"
#include "cache/tier.h"

namespace pagoda::cache {

// Where the blocks of the device lie. On a CPU any thread may copy to and from it.
struct DeviceMemory {
  uint8_t* base = nullptr;
  int64_t block_bytes = 0;

  std::span<uint8_t> block(BlockId id) const {
    return {base + id.value() * block_bytes, static_cast<size_t>(block_bytes)};
  }
};

using TransferId = base::StrongId<struct TransferTag, uint64_t>;

struct RestoreBlock {
  BlockKey key{};
  TierKind from = TierKind::kSsd;
  BlockId to;
};

// One block that has arrived, was stored, or was not.
struct TransferDone {
  TransferId id;
  bool is_restore = false;
  int32_t index = 0;  // restore: in the order of all blocks that the job was ever given
  TierKind tier = TierKind::kSsd;
  BlockId block;
  BlockKey key{};
  absl::Status status;
  int64_t us = 0;  // from its start to its end
};

struct TransferStats {
  struct OneTier {
    int64_t n_restored = 0;  // blocks
    int64_t n_offloaded = 0;
    int64_t n_failed = 0;    // restores that gave no block
    int64_t n_declined = 0;  // offloads that the tier did not take
    int64_t restored_bytes = 0;
    int64_t offloaded_bytes = 0;
    LatencyCounts restores;  // of blocks, from the start of each to its end
    LatencyCounts offloads;
  };
  std::array<OneTier, 3> tiers;                // by TierKind
  std::array<int32_t, 3> n_restores_queued{};  // blocks that wait, by TierKind
  int32_t n_restores_running = 0;
  int32_t n_offloads_waiting = 0;
  int32_t n_offloads_running = 0;

  int32_t n_restores_waiting() const {
    return std::accumulate(n_restores_queued.begin(), n_restores_queued.end(), 0);
  }
};

struct TransferOptions {
  int32_t restore_window = 8;  // blocks under way at once, over all jobs
  int32_t offload_window = 4;
  int32_t max_offloads = 1024;  // waiting ones; more are declined
};

// The engine thread calls everything but what tiers call back. No call waits or copies a block.
class TransferEngine {
 public:
  // Borrows the tiers (null: there is none) and the clock. wake() is called, on a tier's thread,
  // when poll() has something to tell that it did not have before. Calls of the tiers, which may
  // take their time, are made on `starter`; null: by whoever calls.
  TransferEngine(TransferOptions options, DeviceMemory device, Tier* host, Tier* ssd,
                 const base::Clock& clock, std::function<void()> wake,
                 base::IoQueue* starter = nullptr);
  // Waits until nothing is under way.
  ~TransferEngine();

  // A job brings its blocks up in their order; jobs take turns, block by block. Restores go before
  // offloads.
  TransferId restore(std::vector<RestoreBlock> blocks);
  // More of the same job, after all it has. False when the job is over: all its blocks were
  // reported, or it was ended.
  bool append(TransferId id, std::vector<RestoreBlock> blocks);
  // Takes up to n blocks that have not begun off the job's end: how many. They are not reported.
  int32_t take_back(TransferId id, int32_t n);
  // Takes all that have not begun; those under way are still reported. Returns how many were taken.
  int32_t end(TransferId id);
  int32_t n_waiting(TransferId id) const;  // blocks that have not begun

  // Copies a committed block down. False when too many wait: nothing will be reported.
  bool offload(BlockRecord record, BlockId from, TierKind to);

  // What is done since the last call, and starts what may start now.
  std::vector<TransferDone> poll();
  TransferStats stats() const;
  // Nothing waits, runs or is still to be reported.
  bool idle() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pagoda::cache
