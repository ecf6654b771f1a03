// The kernels for AVX-512 with VNNI.
#include <immintrin.h>

#include "kernels/cpu/isa.h"

// GCC 12 takes the intentionally undefined operands of its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#define PAGODA_ISA avx512
#include "kernels/cpu/simd_avx512.h"
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

const Isa& isa_avx512() {
  static constexpr Isa isa = {.name = "avx512-vnni",
                              .matmul = avx512::run_matmul,
                              .attention = avx512::run_attention,
                              .rms_norm = avx512::run_rms_norm,
                              .silu_mul = avx512::run_silu_mul,
                              .rope_angles = avx512::run_rope_angles,
                              .rope_kv_write = avx512::run_rope_kv_write,
                              .gather_rows = avx512::run_gather_rows,
                              .block_maxima = avx512::block_maxima,
                              .exp_sums = avx512::exp_sums};
  return isa;
}

}  // namespace pagoda::cpu
