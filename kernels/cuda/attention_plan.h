// The host's part of paged attention: once a step, the sequences of a layer group are cut into
// items (attention.h) so that all processors of the device have work for the same time.
//
// One query row is decoded, more are prefilled in tiles. Contexts are split where the batch alone
// would leave processors idle, into the fewest pieces that fill them (the rule of FlashInfer,
// arXiv:2501.01005): rows of decoding always, tiles of few rows (speculation, the end of a prompt)
// only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/ops.h"

namespace pagoda::cuda {

// The most rows of a prefill tile whose context is split.
inline constexpr int32_t kMaxSplitRows = 8;
// Fewer tokens aren't worth a part.
inline constexpr int32_t kMinSplitTokens = 256;

struct AttentionShape {
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t block_size = kPageTokens;
  int32_t window = 0;   // 0: none
  int32_t n_slots = 0;  // blocks that the device runs at once
};

// Lists for the device; parts are n_parts rows of every head. Kept and filled anew, so that a
// steady step allocates nothing.
struct AttentionPlan {
  std::vector<int32_t> tables;
  std::vector<AttentionItem> decode;
  std::vector<AttentionItem> prefill;
  std::vector<CombineItem> combine;
  int32_t n_parts = 0;
};

// The most parts of any plan for as many rows as that.
int32_t max_parts(const AttentionShape& shape, int32_t max_rows);

void plan_attention(const AttentionShape& shape, std::span<const ops::AttentionSeq> seqs,
                    AttentionPlan& plan);

}  // namespace pagoda::cuda
