// Matmul, packing and embedding of the CPU backend, in every instruction set of this machine,
// against doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "kernels/ref/dequant.h"

namespace pagoda {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const cpu::Isa* isa : cpu::usable_isas()) names.emplace_back(isa->name);
  return names;
}

std::unique_ptr<CpuBackend> make_backend(const std::string& isa, int32_t n_threads) {
  auto backend = CpuBackend::create({.n_threads = n_threads, .isa = isa});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return std::move(backend).value();
}

void set_half(uint8_t* p, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(p, &bits, sizeof(bits));
}

// Where a block keeps its halves: scales, and minima (or -1).
struct HalvesAt {
  int scale;
  int min;
};
HalvesAt halves_at(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {-1, -1};
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      return {0, -1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208, -1};
  }
  return {-1, -1};
}

struct Weight {
  DType type;
  int64_t n;
  int64_t k;
  std::vector<uint8_t> bytes;

  WeightSource source() const { return {bytes.data(), type, n, k}; }
  double at(int64_t row, int64_t i) const {
    return ref::dequantize(type, bytes.data() + row * dtype_row_bytes(type, k), i);
  }
};

// Random bytes for the integers, so that each pattern occurs, and scales of both signs.
Weight random_weight(DType type, int64_t n, int64_t k, std::mt19937& random) {
  Weight w = {type, n, k, std::vector<uint8_t>(static_cast<size_t>(n * dtype_row_bytes(type, k)))};
  std::normal_distribution<float> normal;
  if (!is_quantized(type)) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float value = normal(random);
      uint8_t* to = w.bytes.data() + i * dtype_info(type).block_bytes;
      if (type == DType::kF32) std::memcpy(to, &value, sizeof(value));
      if (type == DType::kF16) set_half(to, value);
      if (type == DType::kBF16) std::memcpy(to, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
    }
    return w;
  }
  for (uint8_t& byte : w.bytes) byte = static_cast<uint8_t>(random());
  const HalvesAt at = halves_at(type);
  const int64_t block_bytes = dtype_info(type).block_bytes;
  for (size_t b = 0; b < w.bytes.size(); b += static_cast<size_t>(block_bytes)) {
    set_half(w.bytes.data() + b + at.scale, 0.01F * normal(random));
    if (at.min >= 0) set_half(w.bytes.data() + b + at.min, 0.05F * normal(random));
  }
  return w;
}

std::vector<float> random_floats(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random) * (random() % 37 == 0 ? 8.0F : 1.0F);
  return values;
}

// A row of activations as a quantised weight meets it: parts of 32 rounded to 127 steps of each
// sign.
std::vector<double> rounded(const float* x, int64_t k) {
  std::vector<double> out(static_cast<size_t>(k));
  for (int64_t part = 0; part < k; part += 32) {
    float amax = 0;
    for (int64_t i = part; i < part + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float inverse = amax > 0 ? 127.0F / amax : 0;
    for (int64_t i = part; i < part + 32; ++i) {
      out[static_cast<size_t>(i)] =
          static_cast<double>(amax / 127.0F) * static_cast<double>(std::nearbyint(x[i] * inverse));
    }
  }
  return out;
}

std::unique_ptr<PackedWeight> pack(Backend& backend, const std::vector<Weight>& weights,
                                   int32_t rank = 0, int32_t world = 1) {
  std::vector<WeightSource> sources;
  for (const Weight& w : weights) sources.push_back(w.source());
  auto packed = backend.pack(sources, rank, world);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return std::move(packed).value();
}

std::vector<float> multiply(Backend& backend, const PackedWeight& w, const float* x,
                            int32_t n_rows) {
  std::vector<float> y(static_cast<size_t>(n_rows * w.n()), NAN);
  ops::matmul(backend, {.x = x, .weight = &w, .y = y.data(), .n_rows = n_rows});
  return y;
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

class Matmul : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Isa, Matmul, testing::ValuesIn(isa_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Each output against the sum in doubles: closely for the activations as they are rounded, and
// within what the rounding may cost for the activations as they came.
void check_outputs(const Weight& w, const std::vector<float>& x, int32_t n_rows,
                   const std::vector<float>& y) {
  std::vector<double> row(static_cast<size_t>(w.k));
  for (int64_t o = 0; o < w.n; ++o) {
    double largest = 0, square = 0;
    for (int64_t i = 0; i < w.k; ++i) {
      const double value = w.at(o, i);
      row[static_cast<size_t>(i)] = value;
      largest = std::max(largest, std::fabs(value));
      square += value * value;
    }
    for (int32_t r = 0; r < n_rows; ++r) {
      const float* a = x.data() + r * w.k;
      std::vector<double> used(a, a + w.k);
      if (is_quantized(w.type)) used = rounded(a, w.k);
      double close = 0, loose = 0, total = 0, a_square = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        close += row[i] * used[i];
        loose += row[i] * static_cast<double>(a[i]);
        total += std::fabs(used[i]);
        a_square += used[i] * used[i];
      }
      const double got = static_cast<double>(y[static_cast<size_t>(r * w.n + o)]);
      ASSERT_NEAR(got, close, 2e-6 * largest * total)
          << dtype_info(w.type).name << " n " << w.n << " k " << w.k << " row " << r << " out "
          << o;
      ASSERT_NEAR(got, loose, 0.02 * std::sqrt(square * a_square));
    }
  }
}

TEST_P(Matmul, EveryTypeAndShapeAgainstDoubles) {
  std::mt19937 random(1);
  const auto backend = make_backend(GetParam(), 2);
  constexpr int32_t kRows = 64;
  for (const DType type : kTypes) {
    for (const int64_t k : {32, 256, 576, 1536}) {
      if (k % dtype_info(type).block_len != 0) continue;
      for (const int64_t n : {1, 17, 49}) {
        const Weight w = random_weight(type, n, k, random);
        const auto packed = pack(*backend, {w});
        ASSERT_EQ(packed->n(), n);
        ASSERT_EQ(packed->k(), k);
        const std::vector<float> x = random_floats(kRows * k, random);
        const std::vector<float> y = multiply(*backend, *packed, x.data(), kRows);
        check_outputs(w, x, k > 576 ? 9 : 17, y);
        if (HasFatalFailure()) return;
        for (int32_t n_rows = 1; n_rows <= 9; ++n_rows) {
          const int32_t first = kRows - n_rows;
          const std::vector<float> part = multiply(*backend, *packed, x.data() + first * k, n_rows);
          ASSERT_TRUE(same_bits(part.data(), y.data() + first * n, n_rows * n))
              << dtype_info(type).name << " n " << n << " k " << k << " rows " << n_rows;
        }
      }
    }
  }
}

TEST_P(Matmul, RowsOfABatchAreTheRowsAlone) {
  std::mt19937 random(2);
  constexpr int64_t kK = 256, kN = 200;
  for (const DType type : kTypes) {
    const Weight w = random_weight(type, kN, kK, random);
    const std::vector<float> x = random_floats(64 * kK, random);
    std::vector<float> alone;
    {
      const auto backend = make_backend(GetParam(), 1);
      const auto packed = pack(*backend, {w});
      for (int32_t r = 0; r < 64; ++r) {
        const std::vector<float> row = multiply(*backend, *packed, x.data() + r * kK, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
    }
    for (int32_t n_threads = 1; n_threads <= 8; ++n_threads) {
      const auto backend = make_backend(GetParam(), n_threads);
      const auto packed = pack(*backend, {w});
      for (int32_t n_rows = 1; n_rows <= 64; n_rows += n_threads == 1 ? 1 : 7) {
        const std::vector<float> y = multiply(*backend, *packed, x.data(), n_rows);
        ASSERT_TRUE(same_bits(y.data(), alone.data(), n_rows * kN))
            << dtype_info(type).name << " rows " << n_rows << " threads " << n_threads;
      }
    }
  }
}

// More rows than are quantised at a time.
TEST_P(Matmul, LongBatches) {
  std::mt19937 random(3);
  const auto backend = make_backend(GetParam(), 2);
  const std::vector<Weight> weights = {random_weight(DType::kQ5_0, 33, 64, random),
                                       random_weight(DType::kF16, 5, 64, random)};
  const auto packed = pack(*backend, weights);
  constexpr int32_t kRows = 1100;
  const std::vector<float> x = random_floats(kRows * 64, random);
  const std::vector<float> y = multiply(*backend, *packed, x.data(), kRows);
  for (int32_t r = 0; r < kRows; r += 13) {
    const std::vector<float> row = multiply(*backend, *packed, x.data() + r * 64, 1);
    ASSERT_TRUE(same_bits(row.data(), y.data() + r * 38, 38)) << r;
  }
}

TEST_P(Matmul, StackedTypesBiasAndAccumulate) {
  std::mt19937 random(4);
  const auto backend = make_backend(GetParam(), 2);
  constexpr int64_t kK = 512;
  std::vector<Weight> weights;
  int64_t n = 0;
  for (const DType type : kTypes) {
    weights.push_back(random_weight(type, 3 + n % 29, kK, random));
    n += weights.back().n;
  }
  const auto stacked = pack(*backend, weights);
  ASSERT_EQ(stacked->n(), n);
  for (const int32_t n_rows : {1, 3, 8, 21}) {
    const std::vector<float> x = random_floats(n_rows * kK, random);
    const std::vector<float> y = multiply(*backend, *stacked, x.data(), n_rows);
    int64_t column = 0;
    for (const Weight& w : weights) {
      const auto packed = pack(*backend, {w});
      const std::vector<float> own = multiply(*backend, *packed, x.data(), n_rows);
      for (int32_t r = 0; r < n_rows; ++r) {
        ASSERT_TRUE(same_bits(y.data() + r * n + column, own.data() + r * w.n, w.n));
      }
      column += w.n;
    }

    const std::vector<float> bias = random_floats(n, random);
    const std::vector<float> before = random_floats(n_rows * n, random);
    std::vector<float> sum = before;
    ops::matmul(*backend, {.x = x.data(),
                           .weight = stacked.get(),
                           .bias = bias.data(),
                           .y = sum.data(),
                           .n_rows = n_rows,
                           .accumulate = true});
    for (size_t i = 0; i < sum.size(); ++i) {
      ASSERT_EQ(sum[i], before[i] + (y[i] + bias[i % bias.size()]));
    }
  }
}

// With scales of one and integer activations every sum is an exact integer: all instruction sets
// must give that very number, at the extremes of both operands too.
TEST_P(Matmul, IntegersAreExact) {
  std::mt19937 random(5);
  const auto backend = make_backend(GetParam(), 2);
  constexpr int64_t kN = 40, kK = 512;
  constexpr int32_t kRows = 11;
  std::vector<float> x(kRows * kK);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool extreme = i % 32 == 0 || i / kK % 3 == 0;
    const int value = extreme ? 127 : static_cast<int>(random() % 255) - 127;
    x[i] = static_cast<float>(random() % 2 == 0 ? value : -value);
  }
  for (const DType type : kTypes) {
    if (!is_quantized(type)) continue;
    Weight w = random_weight(type, kN, kK, random);
    const HalvesAt at = halves_at(type);
    const auto block_bytes = static_cast<size_t>(dtype_info(type).block_bytes);
    for (size_t b = 0; b < w.bytes.size(); b += block_bytes) {
      uint8_t* block = w.bytes.data() + b;
      if (random() % 3 == 0) std::memset(block, random() % 2 == 0 ? 0x80 : 0x7F, block_bytes);
      set_half(block + at.scale, 1);
      if (at.min >= 0) set_half(block + at.min, -3);
      // Small scales of sub-blocks, so that a float still holds each sum.
      if (type == DType::kQ4_K || type == DType::kQ5_K) {
        for (int i = 4; i < 16; ++i) block[i] &= 3;
      }
      if (type == DType::kQ6_K) {
        for (int i = 192; i < 208; ++i) block[i] = static_cast<uint8_t>(random() % 7 - 3);
      }
    }
    const auto packed = pack(*backend, {w});
    const std::vector<float> y = multiply(*backend, *packed, x.data(), kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kN; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < kK; ++i) {
          sum += w.at(o, i) * static_cast<double>(x[static_cast<size_t>(r * kK + i)]);
        }
        ASSERT_EQ(static_cast<double>(y[static_cast<size_t>(r * kN + o)]), sum)
            << dtype_info(type).name << " row " << r << " out " << o;
      }
    }
  }
}

TEST_P(Matmul, ZeroAndTinyActivationsGiveNoNan) {
  std::mt19937 random(6);
  const auto backend = make_backend(GetParam(), 1);
  for (const DType type : kTypes) {
    const auto packed = pack(*backend, {random_weight(type, 20, 256, random)});
    for (const float value : {0.0F, -0.0F, 1e-45F, 1e-38F, 1e-32F, 3e30F}) {
      const std::vector<float> x(256, value);
      for (const float y : multiply(*backend, *packed, x.data(), 1)) ASSERT_TRUE(std::isfinite(y));
    }
  }
}

// One value that is not finite makes its whole row NaN, wherever it stands, and no other row.
TEST_P(Matmul, RowsThatAreNotFinite) {
  std::mt19937 random(11);
  const auto backend = make_backend(GetParam(), 2);
  constexpr int64_t kN = 37, kK = 512;
  constexpr int32_t kRows = 9, kBadRow = 4;
  const std::vector<float> clean = random_floats(kRows * kK, random);
  for (const DType type : kTypes) {
    if (!is_quantized(type)) continue;
    const auto packed = pack(*backend, {random_weight(type, kN, kK, random)});
    const std::vector<float> want = multiply(*backend, *packed, clean.data(), kRows);
    for (const float value : {NAN, -NAN, INFINITY, -INFINITY}) {
      for (const int64_t lane : {0, 15, 16, 31, 40, 63, 255, 256, 500, 511}) {
        std::vector<float> x = clean;
        x[static_cast<size_t>(kBadRow * kK + lane)] = value;
        const std::vector<float> y = multiply(*backend, *packed, x.data(), kRows);
        const float* bad = y.data() + kBadRow * kN;
        ASSERT_TRUE(std::all_of(bad, bad + kN, [](float v) { return std::isnan(v); }))
            << dtype_info(type).name << " value " << value << " lane " << lane;
        ASSERT_TRUE(same_bits(y.data(), want.data(), kBadRow * kN));
        ASSERT_TRUE(
            same_bits(bad + kN, want.data() + (kBadRow + 1) * kN, (kRows - kBadRow - 1) * kN));
        const std::vector<float> alone = multiply(*backend, *packed, x.data() + kBadRow * kK, 1);
        ASSERT_TRUE(same_bits(alone.data(), bad, kN));
      }
    }
    // Infinities of both signs in every part; and large values that are finite.
    std::vector<float> all(kK, INFINITY);
    for (size_t i = 0; i < all.size(); i += 2) all[i] = -INFINITY;
    for (const float y : multiply(*backend, *packed, all.data(), 1)) ASSERT_TRUE(std::isnan(y));
    const std::vector<float> large(kK, 1e30F);
    for (const float y : multiply(*backend, *packed, large.data(), 1)) {
      ASSERT_TRUE(std::isfinite(y));
    }
  }
}

TEST_P(Matmul, EmbeddingIsTheExactRow) {
  std::mt19937 random(7);
  const auto backend = make_backend(GetParam(), 2);
  constexpr int64_t kK = 512;
  for (const DType type : kTypes) {
    const std::vector<Weight> weights = {random_weight(type, 37, kK, random),
                                         random_weight(DType::kQ4_0, 5, kK, random),
                                         random_weight(type, 20, kK, random)};
    const auto packed = pack(*backend, weights);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 62; ++i) ids.push_back(i);
    ids.insert(ids.end(), {5, 5, 61, 0});
    std::vector<float> out(ids.size() * kK, NAN);
    ops::embed(*backend, {.weight = packed.get(),
                          .ids = ids.data(),
                          .out = out.data(),
                          .n_rows = static_cast<int32_t>(ids.size())});
    for (size_t i = 0; i < ids.size(); ++i) {
      int64_t row = ids[i];
      const Weight* w = weights.data();
      while (row >= w->n) row -= (w++)->n;
      std::vector<float> want(kK);
      ref::dequantize_row(w->type, w->bytes.data() + row * dtype_row_bytes(w->type, kK),
                          want.data(), kK);
      ASSERT_TRUE(same_bits(out.data() + i * kK, want.data(), kK))
          << dtype_info(type).name << " row " << ids[i];
    }
  }
}

TEST_P(Matmul, RanksTogetherAreTheWhole) {
  std::mt19937 random(8);
  const auto backend = make_backend(GetParam(), 2);
  const std::vector<Weight> weights = {random_weight(DType::kQ6_K, 48, 256, random),
                                       random_weight(DType::kF32, 20, 256, random)};
  const std::vector<float> x = random_floats(3 * 256, random);
  const auto whole = pack(*backend, weights);
  const std::vector<float> y = multiply(*backend, *whole, x.data(), 3);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto part = pack(*backend, weights, rank, 4);
    ASSERT_EQ(part->n(), 17);
    const std::vector<float> own = multiply(*backend, *part, x.data(), 3);
    for (int64_t r = 0; r < 3; ++r) {
      EXPECT_TRUE(same_bits(own.data() + r * 17, y.data() + r * 68 + rank * 12, 12));
      EXPECT_TRUE(same_bits(own.data() + r * 17 + 12, y.data() + r * 68 + 48 + rank * 5, 5));
    }
  }
}

TEST(CpuPack, RefusesWhatDoesNotFit) {
  std::mt19937 random(9);
  const auto backend = make_backend("", 1);
  const Weight a = random_weight(DType::kQ4_0, 6, 64, random);
  const Weight b = random_weight(DType::kQ4_0, 6, 96, random);
  const auto refused = [&](std::vector<WeightSource> sources, int32_t rank, int32_t world) {
    return backend->pack(sources, rank, world).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({}, 0, 1));
  EXPECT_TRUE(refused({a.source(), b.source()}, 0, 1));
  EXPECT_TRUE(refused({a.source()}, 0, 4));
  EXPECT_TRUE(refused({a.source()}, 2, 2));
  EXPECT_TRUE(refused({a.source()}, -1, 2));
  EXPECT_TRUE(refused({a.source()}, 0, 0));
  EXPECT_TRUE(refused({{a.bytes.data(), DType::kQ4_0, 6, 40}}, 0, 1));
  EXPECT_TRUE(refused({{a.bytes.data(), DType::kQ4_K, 1, 64}}, 0, 1));
  EXPECT_TRUE(refused({{a.bytes.data(), DType::kQ4_0, 0, 64}}, 0, 1));
  EXPECT_TRUE(refused({{nullptr, DType::kQ4_0, 6, 64}}, 0, 1));
}

TEST(CpuPack, KeepsTheWidthOfTheFile) {
  std::mt19937 random(10);
  const auto backend = make_backend("", 1);
  for (const DType type : kTypes) {
    const Weight w = random_weight(type, 160, 512, random);
    const double ratio =
        static_cast<double>(pack(*backend, {w})->bytes()) / static_cast<double>(w.bytes.size());
    EXPECT_GE(ratio, 1.0) << dtype_info(type).name;
    EXPECT_LE(ratio, 1.03) << dtype_info(type).name;
  }
}

TEST(CpuBackendTest, RefusesUnknownOptions) {
  for (const CpuOptions& options :
       {CpuOptions{.n_threads = 1, .isa = "sse9"}, CpuOptions{.n_threads = -1},
        CpuOptions{.n_threads = 1 << 20}}) {
    EXPECT_EQ(CpuBackend::create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuBackendTest, MemoryIsAlignedAndZero) {
  const auto backend = make_backend("", 1);
  for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{9} << 20}) {
    auto buffer = backend->allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    const uint8_t* data = buffer->as<uint8_t>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    EXPECT_TRUE(std::all_of(data, data + bytes, [](uint8_t byte) { return byte == 0; }));
  }
  EXPECT_EQ(backend->allocate(size_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pagoda
