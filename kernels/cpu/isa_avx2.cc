// The kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include "kernels/cpu/isa.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define PAGODA_ISA avx2
#include "kernels/cpu/simd_avx2.h"
// Each uses what those before it define.
// clang-format off
#include "kernels/cpu/matmul.inl.h"
#include "kernels/cpu/vec_math.inl.h"
#include "kernels/cpu/rows.inl.h"
#include "kernels/cpu/attention.inl.h"
#include "kernels/cpu/sample.inl.h"
// clang-format on
#pragma GCC pop_options

namespace pagoda::cpu {

const Isa& isa_avx2() {
  static constexpr Isa isa = {.name = "avx2",
                              .matmul = avx2::run_matmul,
                              .attention = avx2::run_attention,
                              .rms_norm = avx2::run_rms_norm,
                              .silu_mul = avx2::run_silu_mul,
                              .rope_angles = avx2::run_rope_angles,
                              .rope_kv_write = avx2::run_rope_kv_write,
                              .gather_rows = avx2::run_gather_rows,
                              .block_maxima = avx2::block_maxima,
                              .exp_sums = avx2::exp_sums};
  return isa;
}

}  // namespace pagoda::cpu
