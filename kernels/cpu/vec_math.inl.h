// Functions of 16 floats at once that several kernels share. Like every *.inl.h, compiled once for
// each Isa and including nothing; needs simd_*.h.

namespace pagoda::cpu::PAGODA_ISA {

// e^x within 2 units in the last place (without a fused multiply-add: 3). Below -88 it is exactly
// zero, minus infinity included; above 88 it is e^88; a NaN stays one.
//
// Cody and Waite: x = n ln2 + r with |r| <= ln2 / 2, a polynomial for e^r, 2^n from exponent bits.
PAGODA_INLINE F32x16 exp(F32x16 x) {
  // The operand order matters: max and min give their second operand if either is a NaN.
  x = min(F32x16::set1(88.0F), max(F32x16::set1(-88.0F), x));
  // Added to 1.5 * 2^23, n is what the last bits of the mantissa say.
  const F32x16 magic = F32x16::set1(0x1.8p23F);
  const F32x16 shifted = fma(x, F32x16::set1(0x1.715476p0F), magic);
  const F32x16 n = shifted - magic;
  F32x16 r = fma(n, F32x16::set1(-0x1.62E4p-1F), x);
  r = fma(n, F32x16::set1(-0x1.7F7D1Cp-20F), r);
  F32x16 p = F32x16::set1(0x1.6A2448p-10F);
  p = fma(p, r, F32x16::set1(0x1.1239D6p-7F));
  p = fma(p, r, F32x16::set1(0x1.5558F2p-5F));
  p = fma(p, r, F32x16::set1(0x1.555492p-3F));
  p = fma(p, r, F32x16::set1(0x1.FFFFFCp-2F));
  p = fma(p * r, r, r) + F32x16::set1(1.0F);
  // For x = -88 n is -127, whose biased exponent is zero: the float 0.
  const I32x16 scale = shift_left<23>(as_i32(shifted) + I32x16::set1(127));
  return p * as_f32(scale);
}

}  // namespace pagoda::cpu::PAGODA_ISA
