// Device-side access to a sequence's KV, for the attention kernels.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/portable.h"

namespace pagoda::cuda {

// The scores' exponent is base 2: one multiplication less.
inline constexpr float kLog2E = 1.4426950408889634F;

// The first row of K of a page (16 tokens) of the sequence whose block table begins at `table`.
template <typename T>
PAGODA_DEVICE const T* page_of(const PagedKv& kv, const int32_t* table, int kv_head, int page) {
  const int pages_per_block = kv.block_size / kPageTokens;
  const int block = pages_per_block == 1 ? page : page / pages_per_block;
  const int in_block = pages_per_block == 1 ? 0 : page % pages_per_block;
  return static_cast<const T*>(kv.base) + table[block] * kv.block_stride +
         kv_head * kv.head_stride + in_block * kPageTokens * kv.head_dim;
}

// The first token that a row at the position sees.
PAGODA_DEVICE int first_visible(int position, int window) {
  return window > 0 && position + 1 > window ? position + 1 - window : 0;
}

}  // namespace pagoda::cuda
