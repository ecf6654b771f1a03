// Paged attention on the device: KV as kernels see it, the work list that a step's plan makes, and
// the launchers.
//
// A plan (attention_plan.h) cuts the sequences of a step into items, each some query rows and a
// range of KV tokens. An item whose range is all that its rows see writes their output. The others
// write mergeable states (unnormalised output, maximum, sum; Milakov and Gimelshein 2018,
// arXiv:1805.02867) to parts, and the combine kernel merges the parts of each row.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace pagoda::cuda {

inline constexpr int kPageTokens = 16;

// One layer's KV; strides in elements. A head's tokens of a block are contiguous rows of head_dim.
struct PagedKv {
  const void* base = nullptr;  // K of the layer in block 0
  int64_t block_stride = 0;
  int64_t v_offset = 0;  // from K to V of the same block
  int64_t head_stride = 0;
  int32_t block_size = 0;  // tokens; a multiple of kPageTokens
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;  // 64, 80, 96, 128 or 256
};

struct AttentionItem {
  int32_t row_begin = 0;    // of q and out
  int32_t n_rows = 0;       // consecutive rows at consecutive positions
  int32_t position = 0;     // of the first row
  int32_t table_begin = 0;  // in tables: the sequence's first block
  int32_t kv_begin = 0;     // tokens [kv_begin, kv_end) of the sequence; kv_begin is on a page
  int32_t kv_end = 0;
  int32_t part = -1;  // -1: write the output; else row i of the item writes part + i
};

struct CombineItem {
  int32_t row = 0;
  int32_t part = 0;  // the first; then every `stride`
  int32_t n_parts = 0;
  int32_t stride = 0;
};

// Row at position p sees tokens 0 … p, with a window w only p-w+1 … p.
struct AttentionArgs {
  HalfType type = HalfType::kF16;
  const void* q = nullptr;  // [n_rows, q_stride] of type: the first n_heads * head_dim of a row
  int64_t q_stride = 0;     // elements; a multiple of 8
  void* out = nullptr;      // [n_rows, n_heads * head_dim] of type
  PagedKv kv;
  const int32_t* tables = nullptr;  // block ids of all sequences, one after the other
  const AttentionItem* items = nullptr;
  int32_t n_items = 0;          // 0: nothing is launched
  float* part_out = nullptr;    // [n_parts, n_heads, head_dim], not divided by the sums
  float* part_state = nullptr;  // [n_parts, n_heads, 2]: maximum (of scores in log2), sum
  int32_t n_heads = 0;
  float scale = 0;     // on q.k
  int32_t window = 0;  // 0: none
};

struct CombineArgs {
  HalfType type = HalfType::kF16;
  void* out = nullptr;
  const float* part_out = nullptr;
  const float* part_state = nullptr;
  const CombineItem* items = nullptr;
  int32_t n_items = 0;
  int32_t n_heads = 0;
  int32_t head_dim = 0;
};

// Items of one row each.
void launch_decode_mma(const AttentionArgs& args, StreamHandle stream);
void launch_decode_simt(const AttentionArgs& args, StreamHandle stream);
// Items of up to prefill_tile_rows() rows.
void launch_prefill(const AttentionArgs& args, StreamHandle stream);
void launch_combine(const CombineArgs& args, StreamHandle stream);

// A tile of prefill has 64 rows of (token, head of the group), heads fastest.
inline constexpr int kPrefillTile = 64;
constexpr int prefill_tile_heads(int n_heads, int n_kv_heads) {
  const int group = n_heads / n_kv_heads;
  return group < kPrefillTile ? group : kPrefillTile;
}
constexpr int prefill_tile_rows(int n_heads, int n_kv_heads) {
  return kPrefillTile / prefill_tile_heads(n_heads, n_kv_heads);
}

}  // namespace pagoda::cuda
