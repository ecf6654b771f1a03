// The instruction sets that the CPU kernels exist in. Each kernel is written once (*.inl.h) over
// the 16-lane types of simd_*.h and compiled by isa_portable.cc, isa_avx2.cc and isa_avx512.cc,
// each in a namespace of its own; an Isa is the table of what came out.
//
// The *.inl.h files include nothing: all they use is included here, because a standard header that
// is first seen after `#pragma GCC target` would leave inline functions that the linker may pick
// for a machine that lacks the instructions.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/dtype.h"
#include "kernels/kv_view.h"
#include "kernels/ops.h"

// Functions of the 16-lane types hold vector registers: they must become part of their callers.
#define PAGODA_INLINE inline __attribute__((always_inline))

namespace pagoda::cpu {

struct Isa {
  std::string_view name;
  void (*matmul)(ThreadPool&, const ops::Matmul&) = nullptr;
  void (*attention)(ThreadPool&, const ops::Attention&) = nullptr;
  void (*rms_norm)(ThreadPool&, const ops::RmsNorm&) = nullptr;
  void (*silu_mul)(ThreadPool&, const ops::SiluMul&) = nullptr;
  void (*rope_angles)(ThreadPool&, const ops::RopeAngles&) = nullptr;
  void (*rope_kv_write)(ThreadPool&, const ops::RopeKvWrite&) = nullptr;
  void (*gather_rows)(ThreadPool&, const ops::GatherRows&) = nullptr;
  // Two passes over a row of logits for sample.cc, both by blocks of kLogitBlock: the largest of
  // each block (NaN counts as minus infinity), returning the largest of all; and e^((x - max) *
  // inverse_temperature), its sum of each block and, unless null, all the values.
  float (*block_maxima)(const float* x, int32_t n, float* maxima) = nullptr;
  void (*exp_sums)(const float* x, int32_t n, float max, float inverse_temperature, float* values,
                   double* sums) = nullptr;
};
inline constexpr int32_t kLogitBlock = 512;

const Isa& isa_portable();
const Isa& isa_avx2();    // needs avx2, fma, f16c
const Isa& isa_avx512();  // needs avx512 f, bw, vl, dq, vnni

// Those whose instructions this machine has, the slowest first; never empty.
std::span<const Isa* const> usable_isas();

}  // namespace pagoda::cpu
