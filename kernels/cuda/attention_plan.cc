#include "kernels/cuda/attention_plan.h"

#include <algorithm>

namespace pagoda::cuda {
namespace {

// Query heads of a KV head that a block of the decode kernel takes.
constexpr int32_t kDecodeTileHeads = 8;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What rows at [position, position + n_rows) see.
struct Range {
  int32_t begin;  // on a page
  int32_t end;
};
Range visible(const AttentionShape& shape, int32_t position, int32_t n_rows) {
  const int32_t first =
      shape.window > 0 ? std::max(0, position + 1 - shape.window) / kPageTokens * kPageTokens : 0;
  return {first, position + n_rows};
}

// A pass over all items: f(seq, first row of it, rows, range, whether the range may be split).
template <typename F>
void for_each_tile(const AttentionShape& shape, std::span<const ops::AttentionSeq> seqs, F f) {
  const int32_t tile = prefill_tile_rows(shape.n_heads, shape.n_kv_heads);
  for (size_t s = 0; s < seqs.size(); ++s) {
    const ops::AttentionSeq& seq = seqs[s];
    for (int32_t row = 0; row < seq.n_rows; row += tile) {
      const int32_t n = std::min(tile, seq.n_rows - row);
      f(s, row, n, visible(shape, seq.position + row, n), n <= kMaxSplitRows);
    }
  }
}

// Blocks of the device that an item takes.
int64_t blocks_of(const AttentionShape& shape, bool is_decode) {
  const int32_t group = shape.n_heads / shape.n_kv_heads;
  const int32_t heads =
      is_decode ? kDecodeTileHeads : prefill_tile_heads(shape.n_heads, shape.n_kv_heads);
  return shape.n_kv_heads * ceil_div(group, heads);
}

// The fewest tokens of a piece with which all pieces still run at once; whole pages.
int32_t piece_tokens(const AttentionShape& shape, std::span<const ops::AttentionSeq> seqs) {
  int32_t longest = 0;
  int64_t n_unsplit = 0;
  for_each_tile(shape, seqs, [&](size_t s, int32_t, int32_t, const Range& range, bool may_split) {
    const bool is_decode = seqs[s].n_rows == 1;
    if (may_split) longest = std::max(longest, range.end - range.begin);
    if (!may_split) n_unsplit += blocks_of(shape, is_decode);
  });
  const auto n_blocks = [&](int32_t piece) {
    int64_t n = n_unsplit;
    for_each_tile(shape, seqs, [&](size_t s, int32_t, int32_t, const Range& range, bool may_split) {
      if (!may_split) return;
      n += blocks_of(shape, seqs[s].n_rows == 1) * ceil_div(range.end - range.begin, piece);
    });
    return n;
  };
  int32_t low = kMinSplitTokens / kPageTokens;
  int32_t high = std::max<int32_t>(low, static_cast<int32_t>(ceil_div(longest, kPageTokens)));
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (n_blocks(middle * kPageTokens) <= shape.n_slots) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low * kPageTokens;
}

}  // namespace

int32_t max_parts(const AttentionShape& shape, int32_t max_rows) {
  // Items that are split fit into the slots together, each of a block at least; and no plan has
  // more rows than that.
  const int64_t n_items = std::max<int64_t>(
      shape.n_slots / std::min(blocks_of(shape, true), blocks_of(shape, false)), 1);
  return static_cast<int32_t>(n_items * std::min(kMaxSplitRows, max_rows));
}

void plan_attention(const AttentionShape& shape, std::span<const ops::AttentionSeq> seqs,
                    AttentionPlan& plan) {
  plan.tables.clear();
  plan.decode.clear();
  plan.prefill.clear();
  plan.combine.clear();
  plan.n_parts = 0;
  const int32_t piece = piece_tokens(shape, seqs);
  size_t planned_seq = seqs.size();
  int32_t table_begin = 0;
  for_each_tile(
      shape, seqs, [&](size_t s, int32_t row, int32_t n, const Range& range, bool may_split) {
        const ops::AttentionSeq& seq = seqs[s];
        if (s != planned_seq) {
          planned_seq = s;
          table_begin = static_cast<int32_t>(plan.tables.size());
          const int64_t n_blocks = ceil_div(seq.position + seq.n_rows, shape.block_size);
          for (int64_t i = 0; i < n_blocks; ++i) plan.tables.push_back(seq.blocks[i].value());
        }
        std::vector<AttentionItem>& items = seq.n_rows == 1 ? plan.decode : plan.prefill;
        AttentionItem item;
        item.row_begin = seq.row_begin + row;
        item.n_rows = n;
        item.position = seq.position + row;
        item.table_begin = table_begin;
        item.kv_begin = range.begin;
        item.kv_end = range.end;
        const auto n_pieces =
            may_split ? static_cast<int32_t>(ceil_div(range.end - range.begin, piece)) : 1;
        if (n_pieces == 1) {
          items.push_back(item);
          return;
        }
        for (int32_t i = 0; i < n; ++i) {
          plan.combine.push_back({item.row_begin + i, plan.n_parts + i, n_pieces, n});
        }
        for (int32_t p = 0; p < n_pieces; ++p) {
          item.kv_begin = range.begin + p * piece;
          item.kv_end = std::min(range.end, item.kv_begin + piece);
          item.part = plan.n_parts + p * n;
          items.push_back(item);
        }
        plan.n_parts += n_pieces * n;
      });
}

}  // namespace pagoda::cuda
