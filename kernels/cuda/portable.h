// The thin layer under all kernels: what nvcc and the emulator of tests/cuemu spell differently.
// Kernels are plain CUDA C++ over these names; raw __shared__, inline PTX and <<<>>> stand here
// only. The PTX is that of the PTX ISA for sm_80 and later.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define PAGODA_DEVICE __device__ __forceinline__
// kernel<<<grid, block, shared bytes, stream>>>(arguments), the kernel in parentheses.
#define PAGODA_LAUNCH(kernel, grid, block, shared, stream, ...) \
  (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
// An array of static shared memory.
#define PAGODA_SHARED(T, name, n) __shared__ __align__(16) T name[n]

namespace pagoda::cuda {

// Hands out the dynamic shared memory of the launch, each array on its own 128 bytes.
class SharedMemory {
 public:
  PAGODA_DEVICE SharedMemory() {
    extern __shared__ __align__(128) char pagoda_dynamic_shared[];
    next_ = pagoda_dynamic_shared;
  }
  template <typename T>
  PAGODA_DEVICE T* take(int n) {
    T* const array = reinterpret_cast<T*>(next_);
    next_ += (sizeof(T) * n + 127) / 128 * 128;
    return array;
  }

 private:
  char* next_;
};

// A read of memory that nobody reads again soon and nobody writes during the kernel.
PAGODA_DEVICE uint4 ld_stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Copies 16 bytes from global to shared memory behind the thread's back, or zeros when not valid;
// both addresses on 16 bytes. What is committed may be waited for, up to the newest kPending
// groups.
PAGODA_DEVICE void cp_async16(void* to, const void* from, bool valid = true) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(bytes)
               : "memory");
}
PAGODA_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
PAGODA_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane 8*i + r names row r of matrix i.
PAGODA_DEVICE void ldmatrix_x4(uint32_t r[4], const void* row) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
PAGODA_DEVICE void ldmatrix_x4_trans(uint32_t r[4], const void* row) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}
// Transposes an 8x8 matrix whose fragments the lanes hold.
PAGODA_DEVICE uint32_t movmatrix_trans(uint32_t pair) {
  uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
  return r;
}

// d += a b: a [16, 16] row-major, b [16, 8] column-major, both of T; d [16, 8] in f32.
template <typename T>
PAGODA_DEVICE void mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  if constexpr (__is_same(T, __half)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

}  // namespace pagoda::cuda

#else

#include <cuemu/device.h>

#include <tuple>

using cudaStream_t = struct CUstream_st*;

#define PAGODA_DEVICE inline
#define PAGODA_LAUNCH(kernel, grid, block, shared, stream, ...)       \
  do {                                                                \
    (void)(stream);                                                   \
    const auto pagoda_arguments = std::make_tuple(__VA_ARGS__);       \
    ::cuemu::launch(#kernel, (grid), (block), (shared),               \
                    [&] { std::apply((kernel), pagoda_arguments); }); \
  } while (false)
#define PAGODA_SHARED(T, name, n)   \
  static const char name##_tag = 0; \
  T(&name)[n] = *reinterpret_cast<T(*)[n]>(::cuemu::shared_array(&name##_tag, 0, sizeof(T) * (n)))

namespace pagoda::cuda {

class SharedMemory {
 public:
  template <typename T>
  T* take(int n) {
    const size_t bytes = sizeof(T) * static_cast<size_t>(n);
    const size_t offset = next_;
    next_ += (bytes + 127) / 128 * 128;
    return static_cast<T*>(::cuemu::shared_array(nullptr, offset, bytes));
  }

 private:
  size_t next_ = 0;
};

}  // namespace pagoda::cuda

#endif

namespace pagoda::cuda {

using Half = __half;
using BFloat16 = __nv_bfloat16;

PAGODA_DEVICE float to_float(float x) { return x; }
PAGODA_DEVICE float to_float(Half x) { return __half2float(x); }
PAGODA_DEVICE float to_float(BFloat16 x) { return __bfloat162float(x); }

// To nearest, ties to even.
template <typename T>
PAGODA_DEVICE T from_float(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else if constexpr (__is_same(T, Half)) {
    return __float2half(x);
  } else {
    return __float2bfloat16(x);
  }
}

// Two elements in a word, the first in its low half.
template <typename T>
PAGODA_DEVICE uint32_t pack2(float low, float high) {
  const T pair[2] = {from_float<T>(low), from_float<T>(high)};
  uint32_t word;
  memcpy(&word, pair, sizeof(word));
  return word;
}

// The eight 16-bit elements of 16 bytes.
template <typename T>
PAGODA_DEVICE void unpack8(const uint4& words, float out[8]) {
  T elements[8];
  memcpy(static_cast<void*>(elements), &words, sizeof(elements));
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = to_float(elements[i]);
}
template <typename T>
PAGODA_DEVICE uint4 pack8(const float x[8]) {
  return make_uint4(pack2<T>(x[0], x[1]), pack2<T>(x[2], x[3]), pack2<T>(x[4], x[5]),
                    pack2<T>(x[6], x[7]));
}

// Over the lanes of a warp.
PAGODA_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0U, x, lanes);
  return x;
}
PAGODA_DEVICE float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, lanes));
  return x;
}

}  // namespace pagoda::cuda
