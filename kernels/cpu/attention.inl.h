// Causal grouped-query attention over paged KV. Compiled once for each Isa; includes nothing, needs
// isa.h, simd_*.h and vec_math.inl.h.
//
// A work item is a tile: a few consecutive rows of one sequence with the query heads that share a
// KV head, so that a page is converted to f32 once and used by all of them. A tile goes through the
// pieces of kAttentionPiece tokens, whose borders are absolute positions. In a piece:
//
//   scores   a page of K is [head_dim][16 tokens]: sixteen scores in one register, for
//            kScoreQueries queries a pass over the page
//   softmax  masked by position, e^(score - largest of the piece), their sum
//   values   acc[q] += p[q][t] * V[t], token by token, visible tokens only: what lies in a slot
//            that a row may not see can be anything, also NaN
//
// which makes a state (max, sum, acc) of each query; the states are merged in the order of pieces.
// Everything about one query happens in an order that its position alone decides. So how rows are
// cut into chunks, tiles and work items changes no bit, and a tile with a long context may have its
// pieces done by several workers.

namespace pagoda::cpu::PAGODA_ISA {

// Queries of one pass over a page of K: two accumulators each must fit the registers.
inline constexpr int32_t kScoreQueries = kTileRows == 8 ? 8 : 3;
// Queries and vectors of V of one pass over a page of V: one accumulator for each pair.
inline constexpr int32_t kValueQueries = 4;
inline constexpr int32_t kValueVectors = kTileRows == 8 ? 4 : 1;
inline constexpr int32_t kTileQueries = 24;
inline constexpr int32_t kTileMaxRows = 16;
// Scores of a query lie this far apart; not a power of two, for the cache's sake.
inline constexpr int32_t kScoreStride = ops::kAttentionPiece + kPageTokens;
// Pages in flight ahead of the one in use; one is too few to hide the way to memory.
inline constexpr int32_t kPagesAhead = 4;
// More partial states than this are not worth the memory: then no tile is split.
inline constexpr int64_t kPartialBytesMax = int64_t{64} << 20;

struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool empty() const { return begin >= end; }
};

// Mergeable softmax states of the queries of a tile.
struct SoftmaxStates {
  float* max;  // [kTileQueries]
  float* sum;  // [kTileQueries]
  float* acc;  // [kTileQueries, padded head_dim]

  static int64_t floats(int32_t padded_dim) { return int64_t{kTileQueries} * (2 + padded_dim); }
  static SoftmaxStates at(float* p) { return {p, p + kTileQueries, p + 2 * kTileQueries}; }
};

struct AttentionTile {
  const ops::AttentionSeq* seq;
  int32_t kv_head;
  int32_t first_head;  // of the query heads
  int32_t n_heads;
  int32_t first_row;  // within the sequence
  int32_t n_rows;

  int32_t n_queries() const { return n_rows * n_heads; }  // row-major: query = row * n_heads + head
  int32_t position(int32_t row) const { return seq->position + first_row + row; }
};

// How a call is cut into tiles.
struct AttentionPlan {
  const ops::Attention* args;
  int32_t dim;
  int32_t padded_dim;    // a multiple of 16
  int32_t heads_per_kv;  // query heads that share a KV head
  int32_t tile_heads;    // of those, in one tile
  int32_t head_tiles;    // tiles that cover heads_per_kv
  int32_t tile_rows;
  int32_t n_tiles;
  int32_t n_pieces;  // of the longest context
};

// Memory of a worker.
struct AttentionScratch {
  float* queries;  // groups of kScoreQueries queries, each [head_dim][queries of the group], scaled
  float* scores;   // [kTileQueries, kScoreStride], then probabilities
  float* keys;     // a page as f32
  float* values;   // a page as f32, and 16 floats more, which the last row's padding reads
  SoftmaxStates piece;
  SoftmaxStates total;

  static int64_t floats(int32_t padded_dim) {
    return int64_t{kTileQueries} * (padded_dim + kScoreStride) + 32 * padded_dim + 16 +
           2 * SoftmaxStates::floats(padded_dim);
  }
  static AttentionScratch at(void* memory, int32_t padded_dim) {
    AttentionScratch s;
    s.queries = static_cast<float*>(memory);
    s.scores = s.queries + int64_t{kTileQueries} * padded_dim;
    s.keys = s.scores + int64_t{kTileQueries} * kScoreStride;
    s.values = s.keys + 16 * padded_dim;
    float* states = s.values + 16 * padded_dim + 16;
    s.piece = SoftmaxStates::at(states);
    s.total = SoftmaxStates::at(states + SoftmaxStates::floats(padded_dim));
    return s;
  }
};

PAGODA_INLINE F32x16 load_kv(const float* p) { return F32x16::load(p); }
PAGODA_INLINE F32x16 load_kv(const uint16_t* p) { return F32x16::load_f16(p); }

// keys [dim][16], queries [dim][n] -> scores [n] rows of 16, kScoreStride apart.
template <int n, typename Element>
PAGODA_INLINE void score_page_of(const Element* keys, const float* queries, int32_t dim,
                                 float* scores) {
  F32x16 even[n];
  F32x16 odd[n];
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) even[i] = odd[i] = F32x16::zero();
  for (int32_t d = 0; d < dim; d += 2) {
    const F32x16 key0 = load_kv(keys);
    const F32x16 key1 = load_kv(keys + kPageTokens);
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) even[i] = fma(F32x16::set1(queries[i]), key0, even[i]);
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) odd[i] = fma(F32x16::set1(queries[n + i]), key1, odd[i]);
    keys += 2 * kPageTokens;
    queries += 2 * n;
  }
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) (even[i] + odd[i]).store(scores + i * kScoreStride);
}

template <typename Element, int n = kScoreQueries>
void score_page(int32_t n_queries, const Element* keys, const float* queries, int32_t dim,
                float* scores) {
  if (n_queries == n) {
    score_page_of<n>(keys, queries, dim, scores);
  } else if constexpr (n > 1) {
    score_page<Element, n - 1>(n_queries, keys, queries, dim, scores);
  }
}

// acc[i][0 … 16 n_vectors) += p[i][t] * values[t] for the tokens of `range`, a part of a page.
template <int n, int n_vectors, typename Element>
PAGODA_INLINE void add_values_of(const Element* values, int32_t dim, TokenRange range,
                                 const float* p, float* acc, int32_t padded_dim) {
  F32x16 sums[n][n_vectors];
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; ++j) sums[i][j] = F32x16::load(acc + i * padded_dim + 16 * j);
  }
  for (int32_t t = range.begin; t < range.end; ++t) {
    F32x16 value[n_vectors];
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; ++j) value[j] = load_kv(values + t * dim + 16 * j);
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) {
      const F32x16 weight = F32x16::set1(p[i * kScoreStride + t]);
#pragma GCC unroll 8
      for (int j = 0; j < n_vectors; ++j) sums[i][j] = fma(weight, value[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < n_vectors; ++j) sums[i][j].store(acc + i * padded_dim + 16 * j);
  }
}

template <int n, typename Element, int n_vectors = kValueVectors>
void add_value_vectors(const Element* values, int32_t dim, TokenRange range, const float* p,
                       float* acc, int32_t padded_dim, int32_t d) {
  for (; padded_dim - d >= 16 * n_vectors; d += 16 * n_vectors) {
    add_values_of<n, n_vectors>(values + d, dim, range, p, acc + d, padded_dim);
  }
  if constexpr (n_vectors > 1) {
    if (d < padded_dim) {
      add_value_vectors<n, Element, n_vectors - 1>(values, dim, range, p, acc, padded_dim, d);
    }
  }
}

// The same for any number of queries and the whole head.
template <typename Element, int n = kValueQueries>
void add_values(int32_t n_queries, const Element* values, int32_t dim, TokenRange range,
                const float* p, float* acc, int32_t padded_dim) {
  for (; n_queries >= n; n_queries -= n) {
    add_value_vectors<n>(values, dim, range, p, acc, padded_dim, 0);
    p += n * kScoreStride;
    acc += n * padded_dim;
  }
  if constexpr (n > 1) {
    if (n_queries > 0) {
      add_values<Element, n - 1>(n_queries, values, dim, range, p, acc, padded_dim);
    }
  }
}

// The tokens of a piece that a row sees.
inline TokenRange visible(const ops::Attention& args, int32_t position, int32_t piece) {
  const int32_t begin = piece * ops::kAttentionPiece;
  const int32_t first = args.window > 0 ? std::max(position - args.window + 1, 0) : 0;
  return {std::max(begin, first), std::min(begin + ops::kAttentionPiece, position + 1)};
}

inline const uint8_t* page_of(const ops::Attention& args, const AttentionTile& tile, KvPart part,
                              int32_t token) {
  const KvView& kv = *args.kv;
  return kv.page(tile.seq->blocks[token / kv.block_size], args.layer, part, tile.kv_head,
                 token % kv.block_size);
}

// Asks for a page that the tile reads soon after the one of `token`.
inline void prefetch_ahead(const ops::Attention& args, const AttentionTile& tile, KvPart part,
                           int32_t token, int32_t end) {
  token += kPagesAhead * kPageTokens;
  if (token >= end) return;
  const uint8_t* page = page_of(args, tile, part, token);
  for (int64_t i = 0; i < args.kv->page_bytes(); i += 64) prefetch(page + i);
}

template <typename Element>
const float* to_floats(const Element* page, int32_t n, float* to) {
  for (int32_t i = 0; i < n; i += 16) load_kv(page + i).store(to + i);
  return to;
}

inline void pack_queries(const AttentionPlan& plan, const AttentionTile& tile, float* to) {
  const ops::Attention& args = *plan.args;
  const auto* const rows = static_cast<const float*>(args.q);
  for (int32_t first = 0; first < tile.n_queries(); first += kScoreQueries) {
    const int32_t n = std::min(kScoreQueries, tile.n_queries() - first);
    for (int32_t i = 0; i < n; ++i) {
      const int64_t row = tile.seq->row_begin + tile.first_row + (first + i) / tile.n_heads;
      const int64_t head = tile.first_head + (first + i) % tile.n_heads;
      const float* q = rows + row * args.q_stride + head * plan.dim;
      for (int32_t d = 0; d < plan.dim; ++d) to[d * n + i] = q[d] * args.scale;
    }
    to += int64_t{n} * plan.dim;
  }
}

// Scores of all queries of the tile for the pages that hold `range`.
template <typename Element>
void score_pages(const AttentionPlan& plan, const AttentionTile& tile, TokenRange range,
                 const AttentionScratch& scratch) {
  const int32_t n_queries = tile.n_queries();
  for (int32_t token = range.begin / kPageTokens * kPageTokens; token < range.end;
       token += kPageTokens) {
    const auto* keys =
        reinterpret_cast<const Element*>(page_of(*plan.args, tile, KvPart::kKey, token));
    prefetch_ahead(*plan.args, tile, KvPart::kKey, token, range.end);
    float* scores = scratch.scores + token % ops::kAttentionPiece;
    if (n_queries <= kScoreQueries) {
      score_page(n_queries, keys, scratch.queries, plan.dim, scores);
      continue;
    }
    const float* floats = to_floats(keys, kPageTokens * plan.dim, scratch.keys);
    for (int32_t first = 0; first < n_queries; first += kScoreQueries) {
      const int32_t n = std::min(kScoreQueries, n_queries - first);
      score_page(n, floats, scratch.queries + int64_t{first} * plan.dim, plan.dim,
                 scores + int64_t{first} * kScoreStride);
    }
  }
}

// Turns the scores of one query into probabilities relative to their largest. Lanes of tokens
// outside of `range` become zero in the pages that it touches.
PAGODA_INLINE void softmax_piece(TokenRange range, float* scores, float* max_out, float* sum_out) {
  const F32x16 never = F32x16::set1(-std::numeric_limits<float>::infinity());
  const int32_t begin = range.begin % ops::kAttentionPiece;
  const int32_t end = begin + range.end - range.begin;
  const int32_t first = begin / kPageTokens * kPageTokens;
  const int32_t last = (end - 1) / kPageTokens * kPageTokens;
  keep_first(never, begin - first, F32x16::load(scores + first)).store(scores + first);
  keep_first(F32x16::load(scores + last), end - last, never).store(scores + last);
  F32x16 largest = never;
  for (int32_t t = first; t <= last; t += kPageTokens) {
    largest = max(largest, F32x16::load(scores + t));
  }
  *max_out = reduce_max(largest);
  const F32x16 shift = F32x16::set1(*max_out);
  F32x16 sum = F32x16::zero();
  for (int32_t t = first; t <= last; t += kPageTokens) {
    const F32x16 p = exp(F32x16::load(scores + t) - shift);
    p.store(scores + t);
    sum = sum + p;
  }
  *sum_out = reduce_add(sum);
}

template <typename Element>
void add_pages(const AttentionPlan& plan, const AttentionTile& tile, int32_t piece,
               TokenRange range, const AttentionScratch& scratch, float* acc) {
  // Tokens that all rows see: from the last row's first to the first row's last.
  const TokenRange common = {visible(*plan.args, tile.position(tile.n_rows - 1), piece).begin,
                             visible(*plan.args, tile.position(0), piece).end};
  const bool direct = tile.n_queries() <= kValueQueries && plan.dim == plan.padded_dim;
  for (int32_t token = range.begin / kPageTokens * kPageTokens; token < range.end;
       token += kPageTokens) {
    const auto* page =
        reinterpret_cast<const Element*>(page_of(*plan.args, tile, KvPart::kValue, token));
    prefetch_ahead(*plan.args, tile, KvPart::kValue, token, range.end);
    const float* p = scratch.scores + token % ops::kAttentionPiece;
    const auto add = [&](int32_t first_query, int32_t n, TokenRange part) {
      const float* weights = p + int64_t{first_query} * kScoreStride;
      float* to = acc + int64_t{first_query} * plan.padded_dim;
      if (direct) {
        add_values(n, page, plan.dim, part, weights, to, plan.padded_dim);
      } else {
        add_values(n, scratch.values, plan.dim, part, weights, to, plan.padded_dim);
      }
    };
    if (!direct) to_floats(page, kPageTokens * plan.dim, scratch.values);
    if (token >= common.begin && token + kPageTokens <= common.end) {
      add(0, tile.n_queries(), {0, kPageTokens});
      continue;
    }
    for (int32_t row = 0; row < tile.n_rows; ++row) {
      const TokenRange seen = visible(*plan.args, tile.position(row), piece);
      const TokenRange part = {std::max(seen.begin - token, 0),
                               std::min(seen.end - token, kPageTokens)};
      if (!part.empty()) add(row * tile.n_heads, tile.n_heads, part);
    }
  }
}

// The states of the tile's queries over one piece; those of rows that see nothing of it are not
// written. The queries are packed already.
template <typename Element>
void attend_piece(const AttentionPlan& plan, const AttentionTile& tile, int32_t piece,
                  const AttentionScratch& scratch, const SoftmaxStates& states) {
  const TokenRange range = {visible(*plan.args, tile.position(0), piece).begin,
                            visible(*plan.args, tile.position(tile.n_rows - 1), piece).end};
  if (range.empty()) return;
  score_pages<Element>(plan, tile, range, scratch);
  for (int32_t row = 0; row < tile.n_rows; ++row) {
    const TokenRange seen = visible(*plan.args, tile.position(row), piece);
    if (seen.empty()) continue;
    for (int32_t q = row * tile.n_heads; q < (row + 1) * tile.n_heads; ++q) {
      softmax_piece(seen, scratch.scores + int64_t{q} * kScoreStride, states.max + q,
                    states.sum + q);
      float* acc = states.acc + int64_t{q} * plan.padded_dim;
      for (int32_t d = 0; d < plan.padded_dim; d += 16) F32x16::zero().store(acc + d);
    }
  }
  add_pages<Element>(plan, tile, piece, range, scratch, states.acc);
}

inline float exp_of(float x) { return reduce_max(exp(F32x16::set1(x))); }

// Adds the state of query q over the next piece to that over all before it.
inline void merge_query(const SoftmaxStates& from, const SoftmaxStates& to, int32_t q,
                        int32_t padded_dim) {
  const float* piece = from.acc + int64_t{q} * padded_dim;
  float* acc = to.acc + int64_t{q} * padded_dim;
  const float largest = std::max(to.max[q], from.max[q]);
  const float old_factor = exp_of(to.max[q] - largest);
  const float new_factor = exp_of(from.max[q] - largest);
  to.max[q] = largest;
  to.sum[q] = to.sum[q] * old_factor + from.sum[q] * new_factor;
  for (int32_t d = 0; d < padded_dim; d += 16) {
    const F32x16 scaled = F32x16::load(piece + d) * F32x16::set1(new_factor);
    fma(F32x16::load(acc + d), F32x16::set1(old_factor), scaled).store(acc + d);
  }
}

inline void merge_piece(const AttentionPlan& plan, const AttentionTile& tile, int32_t piece,
                        const SoftmaxStates& from, const SoftmaxStates& to) {
  for (int32_t q = 0; q < tile.n_queries(); ++q) {
    const int32_t position = tile.position(q / tile.n_heads);
    if (visible(*plan.args, position, piece).empty()) continue;
    if (piece > 0 && !visible(*plan.args, position, piece - 1).empty()) {
      merge_query(from, to, q, plan.padded_dim);
      continue;
    }
    const int64_t at = int64_t{q} * plan.padded_dim;
    to.max[q] = from.max[q];
    to.sum[q] = from.sum[q];
    std::memcpy(to.acc + at, from.acc + at, static_cast<size_t>(plan.padded_dim) * sizeof(float));
  }
}

inline void write_out(const AttentionPlan& plan, const AttentionTile& tile,
                      const SoftmaxStates& states) {
  const ops::Attention& args = *plan.args;
  auto* const rows = static_cast<float*>(args.out);
  for (int32_t q = 0; q < tile.n_queries(); ++q) {
    const int64_t row = tile.seq->row_begin + tile.first_row + q / tile.n_heads;
    const int64_t head = tile.first_head + q % tile.n_heads;
    float* out = rows + (row * args.n_heads + head) * plan.dim;
    const float* acc = states.acc + int64_t{q} * plan.padded_dim;
    const F32x16 sum = F32x16::set1(states.sum[q]);
    for (int32_t d = 0; d < plan.dim; d += 16) {
      (F32x16::load(acc + d) / sum).store_first(out + d, std::min(16, plan.dim - d));
    }
  }
}

inline AttentionPlan tiles_of(const ops::Attention& args) {
  const KvView& kv = *args.kv;
  CHECK(kv.page_layout == PageLayout::kKTransposed);
  CHECK(kv.dtype == DType::kF16 || kv.dtype == DType::kF32);
  CHECK_EQ(kv.head_dim % 8, 0);
  CHECK_EQ(args.n_heads % kv.n_kv_heads, 0);
  AttentionPlan plan;
  plan.args = &args;
  plan.dim = kv.head_dim;
  plan.padded_dim = (kv.head_dim + 15) / 16 * 16;
  plan.heads_per_kv = args.n_heads / kv.n_kv_heads;
  plan.tile_heads = std::min(plan.heads_per_kv, kTileQueries);
  plan.head_tiles = (plan.heads_per_kv + plan.tile_heads - 1) / plan.tile_heads;
  plan.tile_rows = std::min(kTileQueries / plan.tile_heads, kTileMaxRows);
  plan.n_tiles = 0;
  plan.n_pieces = 0;
  for (const ops::AttentionSeq& seq : args.seqs) {
    plan.n_tiles += (seq.n_rows + plan.tile_rows - 1) / plan.tile_rows;
    const int32_t end = seq.position + seq.n_rows;
    plan.n_pieces =
        std::max(plan.n_pieces, (end + ops::kAttentionPiece - 1) / ops::kAttentionPiece);
  }
  plan.n_tiles *= kv.n_kv_heads * plan.head_tiles;
  return plan;
}

inline AttentionTile tile_at(const AttentionPlan& plan, int64_t index) {
  const int32_t heads = plan.args->kv->n_kv_heads * plan.head_tiles;
  for (const ops::AttentionSeq& seq : plan.args->seqs) {
    const int32_t row_tiles = (seq.n_rows + plan.tile_rows - 1) / plan.tile_rows;
    if (index >= int64_t{row_tiles} * heads) {
      index -= int64_t{row_tiles} * heads;
      continue;
    }
    // The last rows have the most to do, so they come first.
    const int32_t row_tile = row_tiles - 1 - static_cast<int32_t>(index) / heads;
    const int32_t head = static_cast<int32_t>(index) % heads;
    AttentionTile tile;
    tile.seq = &seq;
    tile.kv_head = head / plan.head_tiles;
    const int32_t skipped = head % plan.head_tiles * plan.tile_heads;
    tile.first_head = tile.kv_head * plan.heads_per_kv + skipped;
    tile.n_heads = std::min(plan.tile_heads, plan.heads_per_kv - skipped);
    tile.first_row = row_tile * plan.tile_rows;
    tile.n_rows = std::min(plan.tile_rows, seq.n_rows - tile.first_row);
    return tile;
  }
  CHECK(false);
}

inline void attend_piece_of(const AttentionPlan& plan, const AttentionTile& tile, int32_t piece,
                            const AttentionScratch& scratch, const SoftmaxStates& states) {
  if (plan.args->kv->dtype == DType::kF16) {
    attend_piece<uint16_t>(plan, tile, piece, scratch, states);
  } else {
    attend_piece<float>(plan, tile, piece, scratch, states);
  }
}

// Each tile by one worker, from its first piece to its last.
inline void attend_whole_tiles(ThreadPool& pool, const AttentionPlan& plan) {
  const auto bytes = static_cast<size_t>(AttentionScratch::floats(plan.padded_dim)) * sizeof(float);
  pool.parallel_for(plan.n_tiles, 1, [&](int64_t begin, int64_t end, int32_t worker) {
    const AttentionScratch scratch =
        AttentionScratch::at(pool.scratch(worker, bytes), plan.padded_dim);
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile tile = tile_at(plan, i);
      pack_queries(plan, tile, scratch.queries);
      const int32_t last_piece = tile.position(tile.n_rows - 1) / ops::kAttentionPiece;
      for (int32_t piece = 0; piece <= last_piece; ++piece) {
        attend_piece_of(plan, tile, piece, scratch, scratch.piece);
        merge_piece(plan, tile, piece, scratch.piece, scratch.total);
      }
      write_out(plan, tile, scratch.total);
    }
  });
}

// Each piece of a tile by whoever is free; then the states are merged.
inline void attend_split_tiles(ThreadPool& pool, const AttentionPlan& plan) {
  const int64_t state_floats = SoftmaxStates::floats(plan.padded_dim);
  const int64_t own_floats = AttentionScratch::floats(plan.padded_dim);
  const int64_t n_states = int64_t{plan.n_tiles} * plan.n_pieces;
  // Worker 0's scratch and the states of all are one allocation, for its scratch can't be asked for
  // twice.
  auto* shared = static_cast<float*>(
      pool.scratch(0, static_cast<size_t>(own_floats + n_states * state_floats) * sizeof(float)));
  float* states = shared + own_floats;
  const auto scratch_of = [&](int32_t worker) {
    void* own = worker == 0 ? shared
                            : pool.scratch(worker, static_cast<size_t>(own_floats) * sizeof(float));
    return AttentionScratch::at(own, plan.padded_dim);
  };
  pool.parallel_for(n_states, 1, [&](int64_t begin, int64_t end, int32_t worker) {
    const AttentionScratch scratch = scratch_of(worker);
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile tile = tile_at(plan, i / plan.n_pieces);
      const auto piece = static_cast<int32_t>(i % plan.n_pieces);
      pack_queries(plan, tile, scratch.queries);
      attend_piece_of(plan, tile, piece, scratch, SoftmaxStates::at(states + i * state_floats));
    }
  });
  pool.parallel_for(plan.n_tiles, 1, [&](int64_t begin, int64_t end, int32_t worker) {
    const AttentionScratch scratch = scratch_of(worker);
    for (int64_t i = begin; i < end; ++i) {
      const AttentionTile tile = tile_at(plan, i);
      for (int32_t piece = 0; piece < plan.n_pieces; ++piece) {
        const int64_t at = (i * plan.n_pieces + piece) * state_floats;
        merge_piece(plan, tile, piece, SoftmaxStates::at(states + at), scratch.total);
      }
      write_out(plan, tile, scratch.total);
    }
  });
}

inline void run_attention(ThreadPool& pool, const ops::Attention& args) {
  const AttentionPlan plan = tiles_of(args);
  if (plan.n_tiles == 0) return;
  const int64_t state_bytes =
      SoftmaxStates::floats(plan.padded_dim) * static_cast<int64_t>(sizeof(float));
  const bool few = plan.n_tiles < 2 * pool.n_threads();
  const bool fits = int64_t{plan.n_tiles} * plan.n_pieces * state_bytes <= kPartialBytesMax;
  if (pool.n_threads() > 1 && plan.n_pieces > 1 && few && fits) {
    attend_split_tiles(pool, plan);
  } else {
    attend_whole_tiles(pool, plan);
  }
}

}  // namespace pagoda::cpu::PAGODA_ISA
