#include "cache/block_pool.h"

#include <spdlog/spdlog.h>

#include "base/check.h"

namespace pagoda::cache {

BlockPool::BlockPool(int32_t n_blocks) : ref_counts_(static_cast<size_t>(n_blocks), 0) {
  free_.reserve(ref_counts_.size());
  // The lowest ids are handed out first: their memory is the first to have been touched.
  for (int32_t i = n_blocks - 1; i >= 0; --i) free_.push_back(BlockId(i));
}

size_t BlockPool::index(BlockId id) const {
  CHECK(id.value() >= 0 && id.value() < n_blocks());
  return static_cast<size_t>(id.value());
}

std::optional<BlockId> BlockPool::try_allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId id = free_.back();
  free_.pop_back();
  CHECK_EQ(ref_counts_[index(id)], 0);
  ref_counts_[index(id)] = 1;
  return id;
}

void BlockPool::pin(std::span<const BlockId> ids) {
  for (const BlockId id : ids) {
    CHECK_GT(ref_counts_[index(id)], 0);
    ++ref_counts_[index(id)];
  }
}

bool BlockPool::release(std::span<const BlockId> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (--ref_counts_[index(ids[i])] >= 0) continue;
    for (size_t k = 0; k <= i; ++k) ++ref_counts_[index(ids[k])];
    spdlog::error("block pool: refused a release of block {}, which is not held that often",
                  ids[i]);
    return false;
  }
  for (const BlockId id : ids) {
    int32_t& count = ref_counts_[index(id)];
    if (count != 0) continue;
    free_.push_back(id);
    count = -1;  // listed twice: free it once
  }
  for (const BlockId id : ids) {
    int32_t& count = ref_counts_[index(id)];
    if (count == -1) count = 0;
  }
  return true;
}

}  // namespace pagoda::cache
