// The 16-lane types on AVX-512 with VNNI. Included by isa_avx512.cc after `#pragma GCC target`;
// simd_portable.h says what each operation means.
#pragma once

namespace pagoda::cpu::avx512 {

// Signed weights get this added, since the dot product takes its first operand unsigned.
inline constexpr int32_t kSignedOffset = 128;
// Activation rows that one pass over the weights serves; what the registers hold.
inline constexpr int32_t kTileRows = 8;

struct I32x16 {
  __m512i v;
  static PAGODA_INLINE I32x16 zero() { return {_mm512_setzero_si512()}; }
  static PAGODA_INLINE I32x16 set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
  static PAGODA_INLINE I32x16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
  static PAGODA_INLINE I32x16 load_u8(const uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static PAGODA_INLINE I32x16 load_s8(const uint8_t* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  PAGODA_INLINE void store(int32_t* p) const { _mm512_storeu_si512(p, v); }
  PAGODA_INLINE void store_s8(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
};

PAGODA_INLINE I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
PAGODA_INLINE I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
PAGODA_INLINE I32x16 operator&(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
PAGODA_INLINE I32x16 operator|(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n>
PAGODA_INLINE I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
PAGODA_INLINE I32x16 shift_right(I32x16 a) {
  return {_mm512_srai_epi32(a.v, n)};
}
PAGODA_INLINE int32_t reduce_add(I32x16 a) { return _mm512_reduce_add_epi32(a.v); }

struct F32x16 {
  __m512 v;
  static PAGODA_INLINE F32x16 zero() { return {_mm512_setzero_ps()}; }
  static PAGODA_INLINE F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
  static PAGODA_INLINE F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static PAGODA_INLINE F32x16 load_first(const float* p, int32_t n) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1), p)};
  }
  static PAGODA_INLINE F32x16 load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static PAGODA_INLINE F32x16 load_bf16(const uint16_t* p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  PAGODA_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  PAGODA_INLINE void store_first(float* p, int32_t n) const {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1), v);
  }
  PAGODA_INLINE void store_f16(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

PAGODA_INLINE F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
PAGODA_INLINE F32x16 abs(F32x16 a) { return {_mm512_abs_ps(a.v)}; }
PAGODA_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
PAGODA_INLINE F32x16 keep_first(F32x16 a, int32_t n, F32x16 other) {
  return {_mm512_mask_mov_ps(other.v, static_cast<__mmask16>((1U << n) - 1), a.v)};
}
PAGODA_INLINE float reduce_add(F32x16 a) {
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}
PAGODA_INLINE float reduce_max(F32x16 a) { return _mm512_reduce_max_ps(a.v); }
PAGODA_INLINE F32x16 to_f32(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
PAGODA_INLINE I32x16 round_to_i32(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
PAGODA_INLINE F32x16 as_f32(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
PAGODA_INLINE I32x16 as_i32(F32x16 a) { return {_mm512_castps_si512(a.v)}; }

struct U8x64 {
  __m512i v;
  static PAGODA_INLINE U8x64 load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};

PAGODA_INLINE U8x64 low_nibbles(U8x64 a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(0x0F))}; }
PAGODA_INLINE U8x64 high_nibbles(U8x64 a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(0x0F))};
}
template <int shift, int mask>
PAGODA_INLINE U8x64 or_bits(U8x64 a, U8x64 bits) {
  __m512i moved = bits.v;
  if constexpr (shift > 0) moved = _mm512_slli_epi16(bits.v, shift);
  if constexpr (shift < 0) moved = _mm512_srli_epi16(bits.v, -shift);
  // 0xEA is (moved & mask) | a.
  return {_mm512_ternarylogic_epi32(moved, _mm512_set1_epi8(mask), a.v, 0xEA)};
}
PAGODA_INLINE U8x64 from_signed(U8x64 a) {
  return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(0x80)))};
}
PAGODA_INLINE I32x16 dot_u7s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  // By hand, because GCC loads the broadcast with an instruction of its own.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(acc.v)
      : "v"(w.v), "m"(*reinterpret_cast<const int32_t*>(a4)));
  return acc;
}
PAGODA_INLINE I32x16 dot_s8s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  return dot_u7s8(acc, w, a4);
}
PAGODA_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace pagoda::cpu::avx512
