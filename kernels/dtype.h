// Element types of tensors, as GGUF names them, and the scalar conversions of the short floats.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace pagoda {

// Block formats are those of the GGUF specification; the sizes are in dtype_info.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

struct DTypeInfo {
  std::string_view name;
  int32_t block_len;    // elements of a block; a row is a whole number of blocks
  int32_t block_bytes;  // bytes of a block
};

constexpr DTypeInfo dtype_info(DType type) {
  switch (type) {
    case DType::kF32:
      return {"F32", 1, 4};
    case DType::kF16:
      return {"F16", 1, 2};
    case DType::kBF16:
      return {"BF16", 1, 2};
    case DType::kQ4_0:
      return {"Q4_0", 32, 18};
    case DType::kQ4_1:
      return {"Q4_1", 32, 20};
    case DType::kQ5_0:
      return {"Q5_0", 32, 22};
    case DType::kQ5_1:
      return {"Q5_1", 32, 24};
    case DType::kQ8_0:
      return {"Q8_0", 32, 34};
    case DType::kQ4_K:
      return {"Q4_K", 256, 144};
    case DType::kQ5_K:
      return {"Q5_K", 256, 176};
    case DType::kQ6_K:
      return {"Q6_K", 256, 210};
  }
  return {"?", 1, 0};
}

// Bytes of a row of n elements; n is a multiple of block_len.
constexpr int64_t dtype_row_bytes(DType type, int64_t n) {
  const DTypeInfo info = dtype_info(type);
  return n / info.block_len * info.block_bytes;
}

constexpr bool is_quantized(DType type) { return dtype_info(type).block_len > 1; }

// IEEE 754 binary16, every bit pattern (subnormal, infinite, NaN) kept in meaning; to f16 rounds to
// nearest, ties to even.
#ifdef __FLT16_MANT_DIG__
inline float f16_to_f32(uint16_t h) { return static_cast<float>(std::bit_cast<_Float16>(h)); }
inline uint16_t f32_to_f16(float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }
#else
// For compilers without the type, as the clang that builds the fuzz targets.
inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = (h & 0x8000U) << 16;
  const uint32_t exponent = (h >> 10) & 0x1FU;
  const uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}
inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half = 0;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00;  // NaN
  } else if (magnitude >= 0x477FF000U) {
    half = 0x7C00;  // from 65520 on the nearest is infinity
  } else if (magnitude < 0x38800000U) {
    // Subnormal. Floats from 0.5 to 1 are 2^-24 apart, as these halves are, so the sum rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  } else {
    magnitude += 0xFFFU + ((magnitude >> 13) & 1U);
    half = (magnitude - 0x38000000U) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}
#endif
inline float bf16_to_f32(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

}  // namespace pagoda
