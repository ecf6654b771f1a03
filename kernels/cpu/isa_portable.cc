// The kernels in plain C++.
#include "kernels/cpu/isa.h"

#define PAGODA_ISA portable
#include "kernels/cpu/simd_portable.h"
// Each uses what those before it define.
// clang-format off
#include "kernels/cpu/matmul.inl.h"
#include "kernels/cpu/vec_math.inl.h"
#include "kernels/cpu/rows.inl.h"
#include "kernels/cpu/attention.inl.h"
#include "kernels/cpu/sample.inl.h"
// clang-format on

namespace pagoda::cpu {

const Isa& isa_portable() {
  static constexpr Isa isa = {.name = "portable",
                              .matmul = portable::run_matmul,
                              .attention = portable::run_attention,
                              .rms_norm = portable::run_rms_norm,
                              .silu_mul = portable::run_silu_mul,
                              .rope_angles = portable::run_rope_angles,
                              .rope_kv_write = portable::run_rope_kv_write,
                              .gather_rows = portable::run_gather_rows,
                              .block_maxima = portable::block_maxima,
                              .exp_sums = portable::exp_sums};
  return isa;
}

}  // namespace pagoda::cpu
