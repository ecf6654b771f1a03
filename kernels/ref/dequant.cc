#include "kernels/ref/dequant.h"

#include <bit>
#include <cstring>

namespace pagoda::ref {
namespace {

double half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return static_cast<double>(f16_to_f32(bits));
}

// In a block of 32 nibbles in 16 bytes, elements 0 … 15 are the low ones.
int nibble(const uint8_t* quants, int64_t i) {
  return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4;
}

// Blocks of 32 with the fifth bits of all elements in a word of 32 bits.
int five_bits(const uint8_t* high_bits, const uint8_t* quants, int64_t i) {
  uint32_t high;
  std::memcpy(&high, high_bits, sizeof(high));
  return nibble(quants, i) | static_cast<int>((high >> i) & 1U) << 4;
}

// The 6-bit scales and minima of the eight sub-blocks of Q4_K and Q5_K lie in 12 bytes: the first
// four of each in the low bits of bytes 0 … 3 and 4 … 7; of the last four the low nibbles in bytes
// 8 … 11 and the upper two bits above those of the first four.
int k_scale(const uint8_t* packed, int64_t sub_block) {
  if (sub_block < 4) return packed[sub_block] & 63;
  return (packed[sub_block + 4] & 15) | (packed[sub_block - 4] >> 6) << 4;
}
int k_min(const uint8_t* packed, int64_t sub_block) {
  if (sub_block < 4) return packed[sub_block + 4] & 63;
  return (packed[sub_block + 4] >> 4) | (packed[sub_block] >> 6) << 4;
}

// d, dmin, 12 bytes of scales, then for each 64 elements 32 bytes: low nibbles, high nibbles.
double q4_k(const uint8_t* block, int64_t i) {
  const uint8_t* quants = block + 16 + i / 64 * 32;
  const int q = i % 64 < 32 ? quants[i % 32] & 15 : quants[i % 32] >> 4;
  return half_at(block) * k_scale(block + 4, i / 32) * q -
         half_at(block + 2) * k_min(block + 4, i / 32);
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit j of byte i % 32 for sub-block j.
double q5_k(const uint8_t* block, int64_t i) {
  const uint8_t* quants = block + 48 + i / 64 * 32;
  const int low = i % 64 < 32 ? quants[i % 32] & 15 : quants[i % 32] >> 4;
  const int q = low | ((block[16 + i % 32] >> (i / 32)) & 1) << 4;
  return half_at(block) * k_scale(block + 4, i / 32) * q -
         half_at(block + 2) * k_min(block + 4, i / 32);
}

// 128 bytes of low nibbles, 64 of upper pairs of bits, 16 signed scales, d. Each half of the block
// has 64 bytes of nibbles and 32 of pairs, for its quarters of 32 elements.
double q6_k(const uint8_t* block, int64_t i) {
  const int64_t half = i / 128, quarter = i % 128 / 32, j = i % 32;
  const uint8_t byte = block[half * 64 + quarter % 2 * 32 + j];
  const int low = quarter < 2 ? byte & 15 : byte >> 4;
  const int high = (block[128 + half * 32 + j] >> (2 * quarter)) & 3;
  const int scale = static_cast<int8_t>(block[192 + i / 16]);
  return half_at(block + 208) * scale * ((low | high << 4) - 32);
}

}  // namespace

double dequantize(DType type, const uint8_t* row, int64_t i) {
  const DTypeInfo info = dtype_info(type);
  const uint8_t* block = row + i / info.block_len * info.block_bytes;
  i %= info.block_len;
  switch (type) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, block, sizeof(value));
      return static_cast<double>(value);
    }
    case DType::kF16:
      return half_at(block);
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, block, sizeof(bits));
      return static_cast<double>(bf16_to_f32(bits));
    }
    case DType::kQ4_0:
      return half_at(block) * (nibble(block + 2, i) - 8);
    case DType::kQ4_1:
      return half_at(block) * nibble(block + 4, i) + half_at(block + 2);
    case DType::kQ5_0:
      return half_at(block) * (five_bits(block + 2, block + 6, i) - 16);
    case DType::kQ5_1:
      return half_at(block) * five_bits(block + 4, block + 8, i) + half_at(block + 2);
    case DType::kQ8_0:
      return half_at(block) * static_cast<int8_t>(block[2 + i]);
    case DType::kQ4_K:
      return q4_k(block, i);
    case DType::kQ5_K:
      return q5_k(block, i);
    case DType::kQ6_K:
      return q6_k(block, i);
  }
  return 0;
}

void dequantize_row(DType type, const uint8_t* row, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(dequantize(type, row, i));
}

}  // namespace pagoda::ref
