// Where KV lies: the one struct in which model and cache meet. Plain data, owned by nobody.
//
// The pool is one allocation of blocks. A block holds block_size tokens of one layer group:
//
//   [block][layer of the group][K, V][kv_head][page of 16 tokens] [inside of a page]
//
// Everything outside a page is fixed; the inside is the backend's choice, named by page_layout, and
// opaque to cache and tiers. All offsets are int64 bytes.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "kernels/dtype.h"

namespace pagoda {

inline constexpr int32_t kPageTokens = 16;

enum class PageLayout : uint8_t {
  kTokenMajor,   // K and V are [16 tokens][head_dim]
  kKTransposed,  // K is [head_dim][16 tokens], V is [16 tokens][head_dim]
};

enum class KvPart : uint8_t { kKey = 0, kValue = 1 };

struct KvView {
  uint8_t* base = nullptr;
  DType dtype = DType::kF16;  // kF16 or kF32
  PageLayout page_layout = PageLayout::kTokenMajor;
  int32_t n_blocks = 0;
  int32_t block_size = kPageTokens;  // tokens; a multiple of kPageTokens
  int32_t n_layers = 0;              // layers of a group
  int32_t n_kv_heads = 0;            // of this rank
  int32_t head_dim = 0;

  constexpr int64_t page_bytes() const {
    return int64_t{kPageTokens} * head_dim * dtype_info(dtype).block_bytes;
  }
  constexpr int64_t head_bytes() const { return page_bytes() * (block_size / kPageTokens); }
  constexpr int64_t part_bytes() const { return head_bytes() * n_kv_heads; }
  constexpr int64_t layer_bytes() const { return part_bytes() * 2; }
  constexpr int64_t block_bytes() const { return layer_bytes() * n_layers; }
  constexpr int64_t pool_bytes() const { return block_bytes() * n_blocks; }

  // The page that holds token `offset` (0 … block_size-1) of a block.
  uint8_t* page(BlockId block, int32_t layer, KvPart part, int32_t kv_head, int32_t offset) const {
    return base + block.value() * block_bytes() + layer * layer_bytes() +
           static_cast<int64_t>(part) * part_bytes() + kv_head * head_bytes() +
           (offset / kPageTokens) * page_bytes();
  }
};

}  // namespace pagoda
