// The host tier: a bounded number of blocks in main memory, beside the device's pool.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/io_queue.h"
#include "cache/tier.h"

namespace pagoda::cache {

struct HostTierOptions {
  int64_t capacity_bytes = 0;
  int64_t block_bytes = 0;
  int32_t numa_node = -1;  // memory of this node (mbind); -1: any
};

// Full means declined: who goes is the tree's choice, by drop(). A block that a get or put is under
// way for is freed when that is over.
class HostTier final : public Tier {
 public:
  // Borrows the queue, which runs the copies. kInvalidArgument: less than a block, or no such node.
  static absl::StatusOr<std::unique_ptr<HostTier>> create(HostTierOptions options,
                                                          base::IoQueue& queue);
  // Waits for what is under way.
  ~HostTier() override;

  TierKind kind() const override { return TierKind::kHost; }
  void put(BlockRecord record, std::span<const uint8_t> bytes, Done done) override;
  void get(const BlockKey& key, std::span<uint8_t> into, Done done) override;
  void drop(const BlockKey& key) override;
  TierStats stats() const override;
  int32_t capacity_blocks() const;

 private:
  class Impl;
  explicit HostTier(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace pagoda::cache
