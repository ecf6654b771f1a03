// CUDA's device names for kernels that the emulator runs. Included by kernels/cuda/portable.h where
// the compiler is not nvcc; the PTX wrappers stand in ptx.h.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <cuemu/cuemu.h>

#define threadIdx (::cuemu::self().index)
#define blockIdx (::cuemu::self().block)
#define blockDim (::cuemu::self().block_dim)
#define gridDim (::cuemu::self().grid_dim)
#define warpSize 32

namespace cuemu {

template <typename T>
T lane_value(const Meeting& meeting, int lane) {
  static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, meeting.values[lane], sizeof(T));
  return value;
}

enum class Shuffle { kIndex, kXor, kDown, kUp };

// Where the source lies outside of its segment the lane reads itself, as in CUDA.
template <typename T>
T shuffle(uint32_t mask, T value, Shuffle kind, int arg, int width, const char* op,
          const Location& where) {
  const int lane = self().lane;
  const int segment = lane & ~(width - 1);
  int source = lane;
  switch (kind) {
    case Shuffle::kIndex:
      source = segment + (arg & (width - 1));
      break;
    case Shuffle::kXor:
      source = (lane ^ arg) < segment + width ? lane ^ arg : lane;
      break;
    case Shuffle::kDown:
      source = lane + arg < segment + width ? lane + arg : lane;
      break;
    case Shuffle::kUp:
      source = lane - arg >= segment ? lane - arg : lane;
      break;
  }
  const Meeting meeting = meet(mask, &value, sizeof(T), op, false, where);
  if ((meeting.lanes >> source & 1U) == 0) {
    fail(std::string(op) + " reads lane " + std::to_string(source) +
         ", which is not in the mask or has exited");
  }
  return lane_value<T>(meeting, source);
}

template <typename T, typename F>
T reduce(uint32_t mask, T value, F join, const char* op, const Location& where) {
  const Meeting meeting = meet(mask, &value, sizeof(T), op, false, where);
  T result{};
  bool is_first = true;
  for (int lane = 0; lane < 32; ++lane) {
    if ((meeting.lanes >> lane & 1U) == 0) continue;
    const T each = lane_value<T>(meeting, lane);
    result = is_first ? each : join(result, each);
    is_first = false;
  }
  return result;
}

template <typename T>
void check_aligned(const T* address) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof(T) != 0) {
    fail("an access of " + std::to_string(sizeof(T)) + " bytes is not aligned");
  }
}

}  // namespace cuemu

#define CUEMU_HERE ::cuemu::Location here = ::cuemu::Location::current()

inline void __syncthreads(CUEMU_HERE) { ::cuemu::barrier("__syncthreads", false, here); }
inline int __syncthreads_or(int predicate, CUEMU_HERE) {
  return ::cuemu::barrier("__syncthreads_or", predicate != 0, here).any;
}
inline int __syncthreads_and(int predicate, CUEMU_HERE) {
  return ::cuemu::barrier("__syncthreads_and", predicate != 0, here).all;
}
inline int __syncthreads_count(int predicate, CUEMU_HERE) {
  return ::cuemu::barrier("__syncthreads_count", predicate != 0, here).count;
}
inline void __syncwarp(unsigned mask = ~0U, CUEMU_HERE) {
  const char nothing = 0;
  ::cuemu::meet(mask, &nothing, 1, "__syncwarp", true, here);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUEMU_HERE) {
  using enum ::cuemu::Shuffle;
  return ::cuemu::shuffle(mask, value, kIndex, source, width, "__shfl_sync", here);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, CUEMU_HERE) {
  using enum ::cuemu::Shuffle;
  return ::cuemu::shuffle(mask, value, kXor, lanes, width, "__shfl_xor_sync", here);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = 32, CUEMU_HERE) {
  using enum ::cuemu::Shuffle;
  return ::cuemu::shuffle(mask, value, kDown, delta, width, "__shfl_down_sync", here);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int delta, int width = 32, CUEMU_HERE) {
  using enum ::cuemu::Shuffle;
  return ::cuemu::shuffle(mask, value, kUp, delta, width, "__shfl_up_sync", here);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, CUEMU_HERE) {
  const auto bit = predicate != 0 ? 1U << ::cuemu::self().lane : 0U;
  return ::cuemu::reduce(
      mask, bit, [](unsigned a, unsigned b) { return a | b; }, "__ballot_sync", here);
}
inline int __any_sync(unsigned mask, int predicate, CUEMU_HERE) {
  return ::cuemu::reduce(
      mask, predicate != 0 ? 1 : 0, [](int a, int b) { return a | b; }, "__any_sync", here);
}
inline int __all_sync(unsigned mask, int predicate, CUEMU_HERE) {
  return ::cuemu::reduce(
      mask, predicate != 0 ? 1 : 0, [](int a, int b) { return a & b; }, "__all_sync", here);
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value, CUEMU_HERE) {
  return ::cuemu::reduce(
      mask, value, [](T a, T b) { return a + b; }, "__reduce_add_sync", here);
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, CUEMU_HERE) {
  return ::cuemu::reduce(
      mask, value, [](T a, T b) { return a > b ? a : b; }, "__reduce_max_sync", here);
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, CUEMU_HERE) {
  return ::cuemu::reduce(
      mask, value, [](T a, T b) { return a < b ? a : b; }, "__reduce_min_sync", here);
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, CUEMU_HERE) {
  const ::cuemu::Meeting meeting =
      ::cuemu::meet(mask, &value, sizeof(T), "__match_any_sync", false, here);
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((meeting.lanes >> lane & 1U) == 0) continue;
    if (::cuemu::lane_value<T>(meeting, lane) == value) same |= 1U << lane;
  }
  return same;
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }

// Stronger than CUDA's, which order nothing: a missing fence is not seen.
inline void __threadfence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { std::atomic_signal_fence(std::memory_order_seq_cst); }

template <typename T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).fetch_add(x, std::memory_order_acq_rel);
}
template <typename T>
T atomicExch(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).exchange(x, std::memory_order_acq_rel);
}
template <typename T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, x, std::memory_order_acq_rel);
  return expected;
}
template <typename T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  std::atomic_ref<T> at(*p);
  T old = at.load(std::memory_order_acquire);
  while (old < x && !at.compare_exchange_weak(old, x, std::memory_order_acq_rel)) {
  }
  return old;
}
template <typename T>
T atomicMin(T* p, std::type_identity_t<T> x) {
  std::atomic_ref<T> at(*p);
  T old = at.load(std::memory_order_acquire);
  while (x < old && !at.compare_exchange_weak(old, x, std::memory_order_acq_rel)) {
  }
  return old;
}
template <typename T>
T atomicOr(T* p, std::type_identity_t<T> x) {
  return std::atomic_ref<T>(*p).fetch_or(x, std::memory_order_acq_rel);
}

template <typename T>
T __ldg(const T* p) {
  ::cuemu::check_aligned(p);
  return *p;
}

#include <cuemu/ptx.h>
