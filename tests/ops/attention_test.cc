// Attention against the reference: ragged batches, borders of pages, blocks and pieces, head
// shapes, windows. Every slot that a row must not see holds a NaN, so reading one shows.
#include "tests/ops/op_cases.h"

namespace pagoda::test {
namespace {

struct Rows {
  int32_t position;
  int32_t n_rows;
};

struct AttentionCase {
  std::string name;
  int32_t n_heads = 3;
  int32_t n_kv_heads = 1;
  int32_t head_dim = 64;
  int32_t block_size = 16;
  DType dtype = DType::kF16;
  int32_t window = 0;
  std::vector<Rows> seqs;
};

std::vector<AttentionCase> attention_cases() {
  const std::vector<Rows> edges = {{0, 1},   {15, 1},  {16, 1},   {17, 1}, {511, 1},
                                   {512, 1}, {513, 1}, {1100, 1}, {31, 1}};
  const std::vector<Rows> chunks = {{0, 40}, {7, 9}, {500, 30}, {1020, 8}, {100, 1}, {0, 1}};
  std::vector<AttentionCase> cases = {
      {.name = "decode at edges", .seqs = edges},
      {.name = "chunks", .seqs = chunks},
      {.name = "prefill", .n_heads = 9, .n_kv_heads = 3, .seqs = {{0, 130}}},
      {.name = "blocks of 32", .block_size = 32, .seqs = edges},
      {.name = "blocks of 64", .block_size = 64, .seqs = chunks},
      {.name = "f32", .dtype = DType::kF32, .seqs = chunks},
      {.name = "f32 decode", .dtype = DType::kF32, .seqs = edges},
      {.name = "no rows", .seqs = {{40, 0}, {3, 2}}},
      {.name = "one head", .n_heads = 1, .seqs = chunks},
      {.name = "many queries of a head", .n_heads = 40, .n_kv_heads = 1, .seqs = {{20, 3}}},
  };
  for (int32_t ratio : {1, 3, 4, 8}) {
    cases.push_back({.name = "ratio " + std::to_string(ratio),
                     .n_heads = 2 * ratio,
                     .n_kv_heads = 2,
                     .seqs = {{0, 20}, {300, 5}, {33, 1}}});
  }
  for (int32_t dim : {8, 16, 40, 72, 80, 96, 128, 256}) {
    cases.push_back({.name = "head_dim " + std::to_string(dim),
                     .n_heads = 4,
                     .n_kv_heads = 2,
                     .head_dim = dim,
                     .seqs = {{0, 18}, {530, 3}, {77, 1}}});
    cases.push_back({.name = "f32 head_dim " + std::to_string(dim),
                     .n_heads = 2,
                     .n_kv_heads = 2,
                     .head_dim = dim,
                     .dtype = DType::kF32,
                     .seqs = {{40, 1}, {600, 1}}});
  }
  for (int32_t window : {1, 5, 16, 100, 512, 700}) {
    cases.push_back({.name = "window " + std::to_string(window),
                     .window = window,
                     .seqs = {{0, 40}, {500, 30}, {1020, 8}, {1100, 1}, {3, 1}}});
  }
  return cases;
}

// One case's data: the same keys and values in a pool of each layout.
struct AttentionData {
  static constexpr int32_t kLayers = 2;
  static constexpr int32_t kLayer = 1;

  AttentionData(const AttentionCase& c, PageLayout layout, std::mt19937_64& random)
      : shape(shape_of(c)), mine(shape, layout), oracle(shape, PageLayout::kTokenMajor) {
    ShuffledBlocks pool(shape.n_blocks, random);
    int32_t n_rows = 0;
    for (const Rows& rows : c.seqs) {
      const int32_t end = rows.position + rows.n_rows;
      tables.push_back(pool.take(blocks_for(end, c.block_size)));
      const int32_t first = c.window > 0 ? std::max(0, rows.position - c.window + 1) : 0;
      // What the first row's window has left behind stays poison.
      for (int32_t token = first; token < end; ++token) write(c, tables.back(), token, random);
      n_rows += rows.n_rows;
    }
    q_stride = (c.n_heads + 2 * c.n_kv_heads) * c.head_dim;
    q = random_floats(random, int64_t{n_rows} * q_stride);
    int32_t row = 0;
    for (size_t i = 0; i < c.seqs.size(); ++i) {
      seqs.push_back({row, c.seqs[i].n_rows, c.seqs[i].position, tables[i].data()});
      row += c.seqs[i].n_rows;
    }
    out_len = int64_t{n_rows} * c.n_heads * c.head_dim;
  }

  static KvView shape_of(const AttentionCase& c) {
    int32_t used = 0;
    for (const Rows& rows : c.seqs) used += blocks_for(rows.position + rows.n_rows, c.block_size);
    return {.dtype = c.dtype,
            .n_blocks = used + used / 2 + 2,
            .block_size = c.block_size,
            .n_layers = kLayers,
            .n_kv_heads = c.n_kv_heads,
            .head_dim = c.head_dim};
  }

  void write(const AttentionCase& c, const std::vector<BlockId>& table, int32_t token,
             std::mt19937_64& random) {
    for (int32_t head = 0; head < c.n_kv_heads; ++head) {
      const std::vector<float> k = random_floats(random, c.head_dim);
      const std::vector<float> v = random_floats(random, c.head_dim);
      const ops::KvSlot slot = slot_of(table, token, c.block_size);
      mine.write(slot, kLayer, head, k.data(), v.data());
      oracle.write(slot, kLayer, head, k.data(), v.data());
    }
  }

  std::vector<float> run(Backend& backend, const AttentionCase& c, const KvView& kv) const {
    std::vector<float> out(static_cast<size_t>(out_len), -7.0F);
    ops::plan_attention(backend,
                        {.kv = &kv, .n_heads = c.n_heads, .window = c.window, .seqs = seqs});
    ops::attention(backend, {.q = q.data(),
                             .q_stride = q_stride,
                             .out = out.data(),
                             .kv = &kv,
                             .layer = kLayer,
                             .n_heads = c.n_heads,
                             .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                             .window = c.window,
                             .seqs = seqs});
    return out;
  }

  KvView shape;
  PoisonedKv mine;
  PoisonedKv oracle;
  std::vector<std::vector<BlockId>> tables;
  std::vector<ops::AttentionSeq> seqs;
  std::vector<float> q;
  int64_t q_stride = 0;
  int64_t out_len = 0;
};

class AttentionTest : public OpTest {};

TEST_P(AttentionTest, MatchesTheReference) {
  for (const AttentionCase& c : attention_cases()) {
    std::mt19937_64 random(7);
    const AttentionData data(c, backend_->capabilities().page_layout, random);
    const std::vector<float> wanted = data.run(reference_, c, data.oracle.view);
    const std::vector<float> got = data.run(*backend_, c, data.mine.view);
    EXPECT_LT(worst_error(got, wanted, 0.5), 3e-6) << c.name;
  }
}

// Scores far apart, so that nearly all mass is on few tokens and most of the rest is exactly zero.
TEST_P(AttentionTest, SharpSoftmax) {
  const AttentionCase c = {.name = "sharp", .seqs = {{0, 40}, {1100, 4}}};
  std::mt19937_64 random(8);
  AttentionData data(c, backend_->capabilities().page_layout, random);
  for (float& q : data.q) q *= 60;
  const std::vector<float> wanted = data.run(reference_, c, data.oracle.view);
  EXPECT_LT(worst_error(data.run(*backend_, c, data.mine.view), wanted, 0.5), 2e-4);
}

// A NaN that a row does see must not be swallowed by the maximum or the exponential.
TEST_P(AttentionTest, VisibleNanShows) {
  const AttentionCase c = {.name = "nan", .n_heads = 2, .n_kv_heads = 2, .seqs = {{600, 1}}};
  std::mt19937_64 random(9);
  AttentionData data(c, backend_->capabilities().page_layout, random);
  const std::vector<float> bad(64, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> good(64, 1.0F);
  data.mine.write(slot_of(data.tables[0], 3, 16), AttentionData::kLayer, 1, bad.data(),
                  good.data());
  const std::vector<float> out = data.run(*backend_, c, data.mine.view);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(std::isfinite(out[i]));
    EXPECT_TRUE(std::isnan(out[64 + i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionTest, testing::ValuesIn(backend_cases()), case_name);

}  // namespace
}  // namespace pagoda::test
