// The 16-lane types on AVX2 with FMA and F16C: two registers each. Included by isa_avx2.cc after
// `#pragma GCC target`; simd_portable.h says what each operation means.
#pragma once

namespace pagoda::cpu::avx2 {

inline constexpr int32_t kSignedOffset = 0;
inline constexpr int32_t kTileRows = 4;

struct I32x16 {
  __m256i lo, hi;
  static PAGODA_INLINE I32x16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static PAGODA_INLINE I32x16 set1(int32_t x) {
    return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
  }
  static PAGODA_INLINE I32x16 load(const int32_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  static PAGODA_INLINE I32x16 load_u8(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static PAGODA_INLINE I32x16 load_s8(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  PAGODA_INLINE void store(int32_t* p) const {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(q, lo);
    _mm256_storeu_si256(q + 1, hi);
  }
  PAGODA_INLINE void store_s8(int8_t* p) const {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xD8);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
};

PAGODA_INLINE I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
PAGODA_INLINE I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
PAGODA_INLINE I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
PAGODA_INLINE I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int n>
PAGODA_INLINE I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}
template <int n>
PAGODA_INLINE I32x16 shift_right(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
}
PAGODA_INLINE int32_t reduce_add(I32x16 a) {
  const __m256i by8 = _mm256_add_epi32(a.lo, a.hi);
  __m128i by4 = _mm_add_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
  by4 = _mm_add_epi32(by4, _mm_shuffle_epi32(by4, 0x4E));
  by4 = _mm_add_epi32(by4, _mm_shuffle_epi32(by4, 0xB1));
  return _mm_cvtsi128_si32(by4);
}

// All ones in the lanes below n.
PAGODA_INLINE I32x16 first_lanes(int32_t n) {
  const __m256i count = _mm256_set1_epi32(n);
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

struct F32x16 {
  __m256 lo, hi;
  static PAGODA_INLINE F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static PAGODA_INLINE F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static PAGODA_INLINE F32x16 load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  static PAGODA_INLINE F32x16 load_first(const float* p, int32_t n) {
    const I32x16 mask = first_lanes(n);
    return {_mm256_maskload_ps(p, mask.lo), _mm256_maskload_ps(p + 8, mask.hi)};
  }
  static PAGODA_INLINE F32x16 load_f16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
  }
  static PAGODA_INLINE F32x16 load_bf16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    const __m256i lo = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16);
    const __m256i hi = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16);
    return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
  }
  PAGODA_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  PAGODA_INLINE void store_first(float* p, int32_t n) const {
    const I32x16 mask = first_lanes(n);
    _mm256_maskstore_ps(p, mask.lo, lo);
    _mm256_maskstore_ps(p + 8, mask.hi, hi);
  }
  PAGODA_INLINE void store_f16(uint16_t* p) const {
    __m128i* q = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

PAGODA_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
PAGODA_INLINE F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
PAGODA_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
PAGODA_INLINE F32x16 keep_first(F32x16 a, int32_t n, F32x16 other) {
  const I32x16 mask = first_lanes(n);
  return {_mm256_blendv_ps(other.lo, a.lo, _mm256_castsi256_ps(mask.lo)),
          _mm256_blendv_ps(other.hi, a.hi, _mm256_castsi256_ps(mask.hi))};
}
PAGODA_INLINE float reduce_add(F32x16 a) {
  const __m256 by8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}
PAGODA_INLINE float reduce_max(F32x16 a) {
  const __m256 by8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_shuffle_ps(by2, by2, 1)));
}
PAGODA_INLINE F32x16 to_f32(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
PAGODA_INLINE I32x16 round_to_i32(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
PAGODA_INLINE F32x16 as_f32(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
PAGODA_INLINE I32x16 as_i32(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}

struct U8x64 {
  __m256i lo, hi;
  static PAGODA_INLINE U8x64 load(const uint8_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
};

PAGODA_INLINE U8x64 low_nibbles(U8x64 a) {
  const __m256i mask = _mm256_set1_epi8(0x0F);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
PAGODA_INLINE U8x64 high_nibbles(U8x64 a) {
  const __m256i mask = _mm256_set1_epi8(0x0F);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
template <int shift, int mask>
PAGODA_INLINE __m256i or_bits_half(__m256i a, __m256i bits) {
  if constexpr (shift > 0) bits = _mm256_slli_epi16(bits, shift);
  if constexpr (shift < 0) bits = _mm256_srli_epi16(bits, -shift);
  return _mm256_or_si256(a, _mm256_and_si256(bits, _mm256_set1_epi8(mask)));
}
template <int shift, int mask>
PAGODA_INLINE U8x64 or_bits(U8x64 a, U8x64 bits) {
  return {or_bits_half<shift, mask>(a.lo, bits.lo), or_bits_half<shift, mask>(a.hi, bits.hi)};
}
PAGODA_INLINE U8x64 from_signed(U8x64 a) { return a; }
PAGODA_INLINE I32x16 dot_u7s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  int32_t four;
  std::memcpy(&four, a4, sizeof(four));
  const __m256i a = _mm256_set1_epi32(four);
  const __m256i ones = _mm256_set1_epi16(1);
  // Two products of 7 by 8 bits fit in 16: nothing saturates.
  const __m256i lo = _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, a), ones);
  const __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, a), ones);
  return {_mm256_add_epi32(acc.lo, lo), _mm256_add_epi32(acc.hi, hi)};
}
PAGODA_INLINE __m256i dot_s8s8_half(__m256i acc, __m256i w, __m256i a) {
  // |w| <= 128 and |a| <= 127, so again two products fit; w's sign moves to a.
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
PAGODA_INLINE I32x16 dot_s8s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  int32_t four;
  std::memcpy(&four, a4, sizeof(four));
  const __m256i a = _mm256_set1_epi32(four);
  return {dot_s8s8_half(acc.lo, w.lo, a), dot_s8s8_half(acc.hi, w.hi, a)};
}
PAGODA_INLINE void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace pagoda::cpu::avx2
