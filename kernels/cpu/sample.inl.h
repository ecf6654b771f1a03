// The passes over whole rows of logits that sampling needs. Compiled once for each Isa; includes
// nothing, needs isa.h, simd_*.h and vec_math.inl.h.

namespace pagoda::cpu::PAGODA_ISA {

inline float block_maxima(const float* x, int32_t n, float* maxima) {
  const F32x16 never = F32x16::set1(-std::numeric_limits<float>::infinity());
  float largest = -std::numeric_limits<float>::infinity();
  for (int32_t begin = 0; begin < n; begin += kLogitBlock) {
    const int32_t end = std::min(begin + kLogitBlock, n);
    F32x16 block = never;
    int32_t i = begin;
    // max gives its second operand if the first is a NaN.
    for (; i + 16 <= end; i += 16) block = max(F32x16::load(x + i), block);
    if (i < end) {
      const F32x16 rest = keep_first(F32x16::load_first(x + i, end - i), end - i, never);
      block = max(rest, block);
    }
    maxima[begin / kLogitBlock] = reduce_max(block);
    largest = std::max(largest, maxima[begin / kLogitBlock]);
  }
  return largest;
}

inline void exp_sums(const float* x, int32_t n, float max_logit, float inverse_temperature,
                     float* values, double* sums) {
  const F32x16 shift = F32x16::set1(max_logit);
  const F32x16 factor = F32x16::set1(inverse_temperature);
  // Far below what exp makes zero; taken for a NaN too, and for the lanes past the end.
  const F32x16 never = F32x16::set1(-1000.0F);
  for (int32_t begin = 0; begin < n; begin += kLogitBlock) {
    const int32_t end = std::min(begin + kLogitBlock, n);
    F32x16 block = F32x16::zero();
    for (int32_t i = begin; i < end; i += 16) {
      const int32_t lanes = std::min(16, end - i);
      const F32x16 scaled = (F32x16::load_first(x + i, lanes) - shift) * factor;
      const F32x16 value = exp(keep_first(max(scaled, never), lanes, never));
      block = block + value;
      if (values != nullptr) value.store_first(values + i, lanes);
    }
    sums[begin / kLogitBlock] = reduce_add(block);
  }
}

}  // namespace pagoda::cpu::PAGODA_ISA
