// The ops that go row by row against the reference: normalisation, activation, rotary positions
// with the write into pages, gathering. Sizes that are no multiple of a register are among them.
#include "tests/ops/op_cases.h"

namespace pagoda::test {
namespace {

class RowsTest : public OpTest {};

TEST_P(RowsTest, RmsNorm) {
  std::mt19937_64 random(1);
  for (int32_t dim : {1, 7, 16, 63, 64, 100, 576, 2048, 4099}) {
    for (int32_t n_rows : {1, 5, 33}) {
      const std::vector<float> x = random_floats(random, int64_t{n_rows} * dim, 3);
      const std::vector<float> weight = random_floats(random, dim);
      std::vector<float> got(x.size());
      std::vector<float> wanted(x.size());
      ops::RmsNorm args = {.x = x.data(),
                           .weight = weight.data(),
                           .out = got.data(),
                           .n_rows = n_rows,
                           .dim = dim,
                           .eps = 1e-5F};
      ops::rms_norm(*backend_, args);
      args.out = wanted.data();
      ops::rms_norm(reference_, args);
      EXPECT_LT(worst_error(got, wanted, 1e-6), 1e-6) << dim;
    }
  }
}

TEST_P(RowsTest, RmsNormOfZeros) {
  // Nothing but eps keeps the first row from a division by zero.
  std::vector<float> x(40, 0.0F);
  const std::vector<float> weight(20, 2.0F);
  for (size_t i = 20; i < 40; ++i) x[i] = 3.0F;
  std::vector<float> out(x.size());
  ops::rms_norm(*backend_, {.x = x.data(),
                            .weight = weight.data(),
                            .out = out.data(),
                            .n_rows = 2,
                            .dim = 20,
                            .eps = 1e-6F});
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[19], 0.0F);
  EXPECT_NEAR(out[20], 2.0F, 1e-6F);
  EXPECT_NEAR(out[39], 2.0F, 1e-6F);
}

TEST_P(RowsTest, SiluMul) {
  std::mt19937_64 random(2);
  for (int32_t dim : {1, 15, 16, 17, 1536}) {
    for (int32_t n_rows : {1, 9}) {
      std::vector<float> gate_up = random_floats(random, int64_t{n_rows} * 2 * dim, 4);
      gate_up[0] = 0;
      std::vector<float> got(static_cast<size_t>(n_rows) * static_cast<size_t>(dim));
      std::vector<float> wanted(got.size());
      ops::SiluMul args = {
          .gate_up = gate_up.data(), .out = got.data(), .n_rows = n_rows, .dim = dim};
      ops::silu_mul(*backend_, args);
      args.out = wanted.data();
      ops::silu_mul(reference_, args);
      EXPECT_LT(worst_error(got, wanted, 1e-6), 2e-6) << dim;
    }
  }
}

TEST_P(RowsTest, SiluMulFarOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gate_up = {100, -100, 1e30F, -1e30F, inf, nan, 1, 1, 1, 1, 1, 1};
  std::vector<float> out(6);
  ops::silu_mul(*backend_, {.gate_up = gate_up.data(), .out = out.data(), .n_rows = 1, .dim = 6});
  EXPECT_EQ(out[0], 100.0F);
  EXPECT_NEAR(out[1], 0.0F, 1e-30F);
  EXPECT_EQ(out[2], 1e30F);
  EXPECT_TRUE(std::isfinite(out[3]));
  EXPECT_EQ(out[4], inf);
  EXPECT_TRUE(std::isnan(out[5]));
}

TEST_P(RowsTest, RopeAngles) {
  std::vector<float> inv_freq;
  for (int32_t i = 0; i < 24; ++i) {
    inv_freq.push_back(static_cast<float>(std::pow(1e6, -i / 24.0)));
  }
  const std::vector<int32_t> positions = {0, 1, 2, 511, 8191, 131071, 1048575};
  const auto n_rows = static_cast<int32_t>(positions.size());
  std::vector<float> got(positions.size() * 48);
  std::vector<float> wanted(got.size());
  ops::RopeAngles args = {.positions = positions.data(),
                          .inv_freq = inv_freq.data(),
                          .cos_sin = got.data(),
                          .n_rows = n_rows,
                          .rope_dim = 48,
                          .scale = 1.25F};
  ops::rope_angles(*backend_, args);
  args.cos_sin = wanted.data();
  ops::rope_angles(reference_, args);
  EXPECT_LT(worst_error(got, wanted, 1e-3), 1e-7);
  EXPECT_EQ(got[0], 1.25F);
  EXPECT_EQ(got[24], 0.0F);
}

struct RopeCase {
  int32_t n_heads;
  int32_t n_kv_heads;
  int32_t head_dim;
  int32_t rope_dim;
  int32_t block_size;
  DType dtype;
};

// The queries of rows of qkv.
std::vector<float> queries_of(const std::vector<float>& qkv, const RopeCase& c) {
  const int64_t row_len = int64_t{c.n_heads + 2 * c.n_kv_heads} * c.head_dim;
  std::vector<float> queries;
  for (auto row = qkv.begin(); row != qkv.end(); row += row_len) {
    queries.insert(queries.end(), row, row + int64_t{c.n_heads} * c.head_dim);
  }
  return queries;
}

// Rows go to slots all over a poisoned pool. Wanted: q and k as the reference turns them and v as
// it is, in the pages rounded to nearest; exactly the slots written, everything else untouched.
void check_rope(Backend& backend, Backend& reference, const RopeCase& c, ops::RopePairs pairs) {
  constexpr int32_t kRows = 45;
  std::mt19937_64 random(5);
  const KvView shape = {.dtype = c.dtype,
                        .n_blocks = 6,
                        .block_size = c.block_size,
                        .n_layers = 2,
                        .n_kv_heads = c.n_kv_heads,
                        .head_dim = c.head_dim};
  PoisonedKv kv(shape, backend.capabilities().page_layout);
  KvView exact = shape;
  exact.dtype = DType::kF32;
  PoisonedKv oracle(exact, PageLayout::kTokenMajor);
  std::vector<ops::KvSlot> slots;
  for (int32_t i = 0; i < shape.n_blocks * c.block_size; ++i) {
    slots.push_back({BlockId(i / c.block_size), i % c.block_size});
  }
  std::shuffle(slots.begin(), slots.end(), random);
  const int32_t row_len = (c.n_heads + 2 * c.n_kv_heads) * c.head_dim;
  std::vector<float> got = random_floats(random, int64_t{kRows} * row_len);
  std::vector<float> wanted = got;
  const std::vector<float> cos_sin = random_floats(random, int64_t{kRows} * c.rope_dim);
  ops::RopeKvWrite args = {.qkv = got.data(),
                           .cos_sin = cos_sin.data(),
                           .slots = slots.data(),
                           .kv = &kv.view,
                           .layer = 1,
                           .n_rows = kRows,
                           .n_heads = c.n_heads,
                           .rope_dim = c.rope_dim,
                           .pairs = pairs};
  ops::rope_kv_write(backend, args);
  args.qkv = wanted.data();
  args.kv = &oracle.view;
  ops::rope_kv_write(reference, args);
  EXPECT_LT(worst_error(queries_of(got, c), queries_of(wanted, c), 1), 1e-6)
      << c.head_dim << " " << c.rope_dim;

  const float rounding = c.dtype == DType::kF16 ? 0x1p-11F : 0.0F;
  PoisonedKv expected(shape, backend.capabilities().page_layout);
  std::vector<float> k(static_cast<size_t>(c.head_dim));
  std::vector<float> v(k.size());
  for (int32_t r = 0; r < kRows; ++r) {
    const ops::KvSlot slot = slots[static_cast<size_t>(r)];
    for (int32_t h = 0; h < c.n_kv_heads; ++h) {
      for (int32_t d = 0; d < c.head_dim; ++d) {
        const float key = oracle.read(slot, 1, KvPart::kKey, h, d);
        k[static_cast<size_t>(d)] = kv.read(slot, 1, KvPart::kKey, h, d);
        v[static_cast<size_t>(d)] = oracle.read(slot, 1, KvPart::kValue, h, d);
        EXPECT_NEAR(k[static_cast<size_t>(d)], key,
                    rounding * std::abs(key) + 2e-6F * std::max(1.0F, std::abs(key)));
      }
      expected.write(slot, 1, h, k.data(), v.data());
    }
  }
  EXPECT_EQ(kv.bytes(), expected.bytes());
}

TEST_P(RowsTest, RopeKvWrite) {
  const RopeCase cases[] = {
      {9, 3, 64, 64, 16, DType::kF16},  {9, 3, 64, 64, 16, DType::kF32},
      {4, 4, 80, 32, 32, DType::kF16},  {2, 1, 72, 72, 64, DType::kF16},
      {2, 2, 40, 10, 16, DType::kF32},  {8, 1, 128, 128, 16, DType::kF16},
      {1, 1, 256, 64, 16, DType::kF16}, {3, 1, 8, 8, 16, DType::kF16},
      {2, 1, 64, 0, 16, DType::kF16},
  };
  for (const RopeCase& c : cases) {
    check_rope(*backend_, reference_, c, ops::RopePairs::kInterleaved);
    check_rope(*backend_, reference_, c, ops::RopePairs::kHalves);
  }
}

// What a half cannot hold exactly: ties, overflow, subnormals, NaN.
TEST_P(RowsTest, HalvesRoundToNearestEven) {
  const float values[8] = {1.0F + 0x1p-11F, 1.0F + 0x3p-11F, 65519.0F, 65520.0F,
                           0x1p-24F,        0x1p-25F,        -0.0F,    0x1.8p-24F};
  const KvView shape = {
      .dtype = DType::kF16, .n_blocks = 1, .n_layers = 1, .n_kv_heads = 1, .head_dim = 8};
  PoisonedKv kv(shape, backend_->capabilities().page_layout);
  std::vector<float> qkv(24, 0.0F);
  std::copy(values, values + 8, qkv.begin() + 8);
  std::copy(values, values + 8, qkv.begin() + 16);
  const ops::KvSlot slot = {BlockId(0), 5};
  ops::rope_kv_write(*backend_, {.qkv = qkv.data(),
                                 .slots = &slot,
                                 .kv = &kv.view,
                                 .n_rows = 1,
                                 .n_heads = 1,
                                 .rope_dim = 0});
  const float wanted[8] = {
      1.0F,     1.0F + 0x1p-9F, 65504.0F, std::numeric_limits<float>::infinity(),
      0x1p-24F, 0.0F,           -0.0F,    0x1p-23F};
  for (int32_t d = 0; d < 8; ++d) {
    for (KvPart part : {KvPart::kKey, KvPart::kValue}) {
      EXPECT_EQ(kv.read(slot, 0, part, 0, d), wanted[d]) << d;
    }
  }
}

TEST_P(RowsTest, GatherRows) {
  std::mt19937_64 random(6);
  const std::vector<int32_t> rows = {49, 0, 7, 7, 31};
  for (const int64_t row_bytes : {2, 66, 132, 4096}) {
    std::vector<uint8_t> x(static_cast<size_t>(50 * row_bytes));
    for (uint8_t& byte : x) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> got(rows.size() * static_cast<size_t>(row_bytes));
    ops::gather_rows(*backend_, {.x = x.data(),
                                 .rows = rows.data(),
                                 .out = got.data(),
                                 .n_rows = static_cast<int32_t>(rows.size()),
                                 .row_bytes = row_bytes});
    auto to = got.begin();
    for (const int32_t i : rows) {
      const auto row = x.begin() + i * row_bytes;
      EXPECT_TRUE(std::equal(row, row + row_bytes, to)) << row_bytes;
      to += row_bytes;
    }
  }
}

TEST_P(RowsTest, NoRows) {
  ops::rms_norm(*backend_, {.dim = 64});
  ops::silu_mul(*backend_, {.dim = 64});
  ops::gather_rows(*backend_, {.row_bytes = 64});
  ops::rope_angles(*backend_, {.rope_dim = 64});
}

INSTANTIATE_TEST_SUITE_P(Cpu, RowsTest, testing::ValuesIn(backend_cases()), case_name);

}  // namespace
}  // namespace pagoda::test
