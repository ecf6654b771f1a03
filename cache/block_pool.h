// Which blocks are free. Every block has a count of those that hold it: the lease or tree it
// belongs to, and each transfer that reads or writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace pagoda::cache {

// Engine thread only. Knows nothing of what blocks contain.
class BlockPool {
 public:
  explicit BlockPool(int32_t n_blocks);

  int32_t n_blocks() const { return static_cast<int32_t>(ref_counts_.size()); }
  int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t ref_count(BlockId id) const { return ref_counts_[index(id)]; }

  // A free block, now held once; none when all are held.
  std::optional<BlockId> try_allocate();
  // Holds each block once more for every time it is listed. All of them are held already.
  void pin(std::span<const BlockId> ids);
  // Lets go of each block once for every time it is listed; one that nobody holds is free again.
  // A list that would let go of more than is held is refused as a whole: false, logged, no change.
  [[nodiscard]] bool release(std::span<const BlockId> ids);

 private:
  size_t index(BlockId id) const;

  std::vector<int32_t> ref_counts_;  // [n_blocks]
  std::vector<BlockId> free_;        // a stack
};

}  // namespace pagoda::cache
