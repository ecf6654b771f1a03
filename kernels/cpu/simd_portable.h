// The 16-lane types in plain C++ with GCC's vectors of 16 bytes, for any processor. The three
// simd_*.h define the same names; this is where they are explained.
//
//   F32x16, I32x16   16 floats, 16 integers; arithmetic is lane by lane
//   U8x64            64 bytes: 16 outputs x 4 consecutive inputs of a packed weight
#pragma once

namespace pagoda::cpu::portable {

// What from_signed() adds to a signed weight.
inline constexpr int32_t kSignedOffset = 0;
// Activation rows that one pass over the weights serves; what the registers hold.
inline constexpr int32_t kTileRows = 2;

using F32x4 = float __attribute__((vector_size(16)));
using I32x4 = int32_t __attribute__((vector_size(16)));
using I16x8 = int16_t __attribute__((vector_size(16)));
using U16x8 = uint16_t __attribute__((vector_size(16)));
using U8x16 = uint8_t __attribute__((vector_size(16)));

template <typename V>
PAGODA_INLINE V load_vector(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

struct I32x16 {
  I32x4 v[4];
  static PAGODA_INLINE I32x16 zero() { return {}; }
  static PAGODA_INLINE I32x16 set1(int32_t x) {
    const I32x4 four = {x, x, x, x};
    return {{four, four, four, four}};
  }
  static PAGODA_INLINE I32x16 load(const int32_t* p) { return load_vector<I32x16>(p); }
  // 16 bytes, widened without or with their sign.
  static PAGODA_INLINE I32x16 load_u8(const uint8_t* p) {
    int32_t wide[16];
    for (int i = 0; i < 16; ++i) wide[i] = p[i];
    return load(wide);
  }
  static PAGODA_INLINE I32x16 load_s8(const uint8_t* p) {
    int32_t wide[16];
    for (int i = 0; i < 16; ++i) wide[i] = static_cast<int8_t>(p[i]);
    return load(wide);
  }
  PAGODA_INLINE void store(int32_t* p) const { std::memcpy(p, v, sizeof(v)); }
  // Each lane is within -128 … 127.
  PAGODA_INLINE void store_s8(int8_t* p) const {
    int32_t wide[16];
    store(wide);
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(wide[i]);
  }
};

PAGODA_INLINE I32x16 operator+(I32x16 a, I32x16 b) {
  return {{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]}};
}
PAGODA_INLINE I32x16 operator-(I32x16 a, I32x16 b) {
  return {{a.v[0] - b.v[0], a.v[1] - b.v[1], a.v[2] - b.v[2], a.v[3] - b.v[3]}};
}
PAGODA_INLINE I32x16 operator&(I32x16 a, I32x16 b) {
  return {{a.v[0] & b.v[0], a.v[1] & b.v[1], a.v[2] & b.v[2], a.v[3] & b.v[3]}};
}
PAGODA_INLINE I32x16 operator|(I32x16 a, I32x16 b) {
  return {{a.v[0] | b.v[0], a.v[1] | b.v[1], a.v[2] | b.v[2], a.v[3] | b.v[3]}};
}
template <int n>
PAGODA_INLINE I32x16 shift_left(I32x16 a) {
  return {{a.v[0] << n, a.v[1] << n, a.v[2] << n, a.v[3] << n}};
}
// Arithmetic: the sign comes in from the left.
template <int n>
PAGODA_INLINE I32x16 shift_right(I32x16 a) {
  return {{a.v[0] >> n, a.v[1] >> n, a.v[2] >> n, a.v[3] >> n}};
}
PAGODA_INLINE int32_t reduce_add(I32x16 a) {
  const I32x4 by4 = (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]);
  return (by4[0] + by4[1]) + (by4[2] + by4[3]);
}

// Four of eight halves as floats: the lower (0) or the upper ones (1).
PAGODA_INLINE F32x4 widen_halves(int upper, I16x8 halves) {
  const I16x8 zero = {};
  const I32x4 half = reinterpret_cast<I32x4>(
      upper == 0 ? __builtin_shufflevector(halves, zero, 0, 8, 1, 9, 2, 10, 3, 11)
                 : __builtin_shufflevector(halves, zero, 4, 12, 5, 13, 6, 14, 7, 15));
  // The exponent of a half, read as that of a float, is 112 too small; a multiplication puts that
  // right, for subnormal halves too. Infinities and NaNs need all the bits of the exponent.
  const F32x4 scaled = reinterpret_cast<F32x4>((half & 0x7FFF) << 13) * 0x1p112F;
  const I32x4 special = ((half & 0x7C00) == 0x7C00) & 0x7F800000;
  return reinterpret_cast<F32x4>(reinterpret_cast<I32x4>(scaled) | special | (half & 0x8000) << 16);
}

struct F32x16 {
  F32x4 v[4];
  static PAGODA_INLINE F32x16 zero() { return {}; }
  static PAGODA_INLINE F32x16 set1(float x) {
    const F32x4 four = {x, x, x, x};
    return {{four, four, four, four}};
  }
  static PAGODA_INLINE F32x16 load(const float* p) { return load_vector<F32x16>(p); }
  // Lanes 0 … n-1 from memory, the others zero; n is 0 … 16, and nothing past p[n-1] is touched.
  static PAGODA_INLINE F32x16 load_first(const float* p, int32_t n) {
    float lanes[16] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  static PAGODA_INLINE F32x16 load_f16(const uint16_t* p) {
    F32x16 out;
    for (int i = 0; i < 4; ++i) out.v[i] = widen_halves(i % 2, load_vector<I16x8>(p + i / 2 * 8));
    return out;
  }
  static PAGODA_INLINE F32x16 load_bf16(const uint16_t* p) {
    uint32_t bits[16];
    for (int i = 0; i < 16; ++i) bits[i] = static_cast<uint32_t>(p[i]) << 16;
    return load_vector<F32x16>(bits);
  }
  PAGODA_INLINE void store(float* p) const { std::memcpy(p, v, sizeof(v)); }
  PAGODA_INLINE void store_first(float* p, int32_t n) const {
    float lanes[16];
    store(lanes);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
  // Rounds to nearest, ties to even.
  PAGODA_INLINE void store_f16(uint16_t* p) const {
    float lanes[16];
    store(lanes);
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(lanes[i]);
  }
};

PAGODA_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {{a.v[0] + b.v[0], a.v[1] + b.v[1], a.v[2] + b.v[2], a.v[3] + b.v[3]}};
}
PAGODA_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {{a.v[0] - b.v[0], a.v[1] - b.v[1], a.v[2] - b.v[2], a.v[3] - b.v[3]}};
}
PAGODA_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {{a.v[0] * b.v[0], a.v[1] * b.v[1], a.v[2] * b.v[2], a.v[3] * b.v[3]}};
}
PAGODA_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {{a.v[0] / b.v[0], a.v[1] / b.v[1], a.v[2] / b.v[2], a.v[3] / b.v[3]}};
}
PAGODA_INLINE F32x4 max4(F32x4 a, F32x4 b) { return a > b ? a : b; }
PAGODA_INLINE F32x4 min4(F32x4 a, F32x4 b) { return a < b ? a : b; }
// Where either is a NaN, b.
PAGODA_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {{max4(a.v[0], b.v[0]), max4(a.v[1], b.v[1]), max4(a.v[2], b.v[2]), max4(a.v[3], b.v[3])}};
}
PAGODA_INLINE F32x16 min(F32x16 a, F32x16 b) {
  return {{min4(a.v[0], b.v[0]), min4(a.v[1], b.v[1]), min4(a.v[2], b.v[2]), min4(a.v[3], b.v[3])}};
}
// a * b + c, rounded once where the processor has that; here twice.
PAGODA_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return a * b + c; }
// Lanes 0 … n-1 of a, the others of `other`; n is 0 … 16.
PAGODA_INLINE F32x16 keep_first(F32x16 a, int32_t n, F32x16 other) {
  float lanes[16];
  other.store(lanes);
  a.store_first(lanes, n);
  return F32x16::load(lanes);
}
// Always in the same order: lane i and lane i + 8, then + 4, + 2, + 1.
PAGODA_INLINE float reduce_add(F32x16 a) {
  const F32x4 by4 = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);
  return (by4[0] + by4[2]) + (by4[1] + by4[3]);
}
PAGODA_INLINE float reduce_max(F32x16 a) {
  const F32x4 by4 = max4(max4(a.v[0], a.v[2]), max4(a.v[1], a.v[3]));
  return std::max(std::max(by4[0], by4[2]), std::max(by4[1], by4[3]));
}
PAGODA_INLINE F32x16 to_f32(I32x16 a) {
  return {{__builtin_convertvector(a.v[0], F32x4), __builtin_convertvector(a.v[1], F32x4),
           __builtin_convertvector(a.v[2], F32x4), __builtin_convertvector(a.v[3], F32x4)}};
}
// The same 32 bits as the other type.
PAGODA_INLINE F32x16 as_f32(I32x16 a) { return load_vector<F32x16>(&a); }
PAGODA_INLINE I32x16 as_i32(F32x16 a) { return load_vector<I32x16>(&a); }
PAGODA_INLINE F32x16 abs(F32x16 a) { return as_f32(as_i32(a) & I32x16::set1(0x7FFFFFFF)); }
// To the nearest integer, ties to even; magnitudes below 2^22.
PAGODA_INLINE I32x16 round_to_i32(F32x16 a) {
  // Added to 1.5 * 2^23, the integer is what the mantissa's last bits say.
  const F32x16 magic = F32x16::set1(0x1.8p23F);
  return as_i32(a + magic) - as_i32(magic);
}

struct U8x64 {
  U8x16 v[4];
  static PAGODA_INLINE U8x64 load(const uint8_t* p) { return load_vector<U8x64>(p); }
};

PAGODA_INLINE U8x64 low_nibbles(U8x64 a) {
  return {{a.v[0] & 15, a.v[1] & 15, a.v[2] & 15, a.v[3] & 15}};
}
// Shifted as pairs, since processors lack shifts of bytes; what comes from the neighbour byte is
// for the caller to mask.
template <int shift>
PAGODA_INLINE U8x16 shift_left_pairs(U8x16 a) {
  const U16x8 pairs = reinterpret_cast<U16x8>(a);
  if constexpr (shift >= 0) return reinterpret_cast<U8x16>(pairs << shift);
  return reinterpret_cast<U8x16>(pairs >> -shift);
}
PAGODA_INLINE U8x64 high_nibbles(U8x64 a) {
  for (int i = 0; i < 4; ++i) a.v[i] = shift_left_pairs<-4>(a.v[i]) & 15;
  return a;
}
// a | (bits shifted left by `shift`, which may be negative, & mask), byte by byte; the mask lies
// within what the shift leaves of the byte itself.
template <int shift, int mask>
PAGODA_INLINE U8x64 or_bits(U8x64 a, U8x64 bits) {
  for (int i = 0; i < 4; ++i) {
    a.v[i] |= shift_left_pairs<shift>(bits.v[i]) & static_cast<uint8_t>(mask);
  }
  return a;
}
// Signed weights in the form that dot_s8s8 wants: each plus kSignedOffset.
PAGODA_INLINE U8x64 from_signed(U8x64 a) { return a; }

// Sums of the four products of 16-bit integers of each lane.
PAGODA_INLINE I32x4 sum_of_four(I16x8 first, I16x8 second) {
  const I32x4 a = reinterpret_cast<I32x4>(first);
  const I32x4 b = reinterpret_cast<I32x4>(second);
  const I32x4 pairs_a = ((a << 16) >> 16) + (a >> 16);
  const I32x4 pairs_b = ((b << 16) >> 16) + (b >> 16);
  return __builtin_shufflevector(pairs_a, pairs_b, 0, 2, 4, 6) +
         __builtin_shufflevector(pairs_a, pairs_b, 1, 3, 5, 7);
}
PAGODA_INLINE I16x8 activations_twice(const int8_t* a4) {
  const int16_t a = a4[0], b = a4[1], c = a4[2], d = a4[3];
  return I16x8{a, b, c, d, a, b, c, d};
}
// acc[i] + the sum over j < 4 of w[4 i + j] * a4[j], exactly: weights 0 … 127, activations
// -127 … 127.
PAGODA_INLINE I32x16 dot_u7s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  const I16x8 a = activations_twice(a4);
  const U8x16 zero = {};
  for (int i = 0; i < 4; ++i) {
    const U8x16 low = __builtin_shufflevector(w.v[i], zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                              21, 6, 22, 7, 23);
    const U8x16 high = __builtin_shufflevector(w.v[i], zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                               13, 29, 14, 30, 15, 31);
    acc.v[i] += sum_of_four(reinterpret_cast<I16x8>(low) * a, reinterpret_cast<I16x8>(high) * a);
  }
  return acc;
}
// The same for weights made by from_signed: the sum of (w - kSignedOffset) * a is what is wanted,
// and the caller subtracts kSignedOffset times the sum of the activations.
PAGODA_INLINE I32x16 dot_s8s8(I32x16 acc, U8x64 w, const int8_t* a4) {
  const I16x8 a = activations_twice(a4);
  for (int i = 0; i < 4; ++i) {
    const U8x16 low =
        __builtin_shufflevector(w.v[i], w.v[i], 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const U8x16 high = __builtin_shufflevector(w.v[i], w.v[i], 8, 8, 9, 9, 10, 10, 11, 11, 12, 12,
                                               13, 13, 14, 14, 15, 15);
    // Each byte lies twice in its 16 bits; the shift leaves it there once, with its sign.
    acc.v[i] += sum_of_four((reinterpret_cast<I16x8>(low) >> 8) * a,
                            (reinterpret_cast<I16x8>(high) >> 8) * a);
  }
  return acc;
}
// Asks for the line that holds p, which need not be a valid address.
PAGODA_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace pagoda::cpu::portable
