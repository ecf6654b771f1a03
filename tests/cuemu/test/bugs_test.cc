// The emulator's own faults to find: each kernel here has one, and each has to be seen.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/portable.h"

namespace {

using pagoda::cuda::cp_async16;
using pagoda::cuda::cp_async_commit;
using pagoda::cuda::cp_async_wait;

__global__ void divergent_barrier(float*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void barrier_after_exit(float*) {
  if (threadIdx.x >= 60) return;
  __syncthreads();
}
__global__ void exit_before_barrier(float*) {
  if (threadIdx.x == 0) return;
  __syncthreads();
}
__global__ void mask_without_the_caller(float* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFU, 1.0F, 1);
}
__global__ void two_collectives_meet(float* out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = __shfl_xor_sync(~0U, 1.0F, 1);
  } else {
    out[threadIdx.x] = __shfl_down_sync(~0U, 1.0F, 1);
  }
}
__global__ void half_a_warp_shuffles(float* out) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_xor_sync(~0U, 1.0F, 1);
  __syncthreads();
}
__global__ void overlapping_masks(float* out) {
  if (threadIdx.x % 32 < 16) {
    out[threadIdx.x] = __shfl_xor_sync(0x1FFFFU, 1.0F, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(0xFFFF8000U, 1.0F, 1);
  }
}
__global__ void reads_a_lane_outside_of_the_mask(float* out) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = __shfl_sync(0xFFFFU, 1.0F, 20);
}
__global__ void waits_for_a_part_of_a_warp(float* out) {
  if (threadIdx.x % 32 == 5) __syncwarp(0x60U);
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void misaligned_read(float* out) {
  out[0] = static_cast<float>(pagoda::cuda::ld_stream(reinterpret_cast<const uint4*>(out + 1)).x);
}
__global__ void misaligned_copy(float* out) {
  PAGODA_SHARED(float, tile, 64);
  cp_async16(tile + 1, out);
  cp_async_commit();
  cp_async_wait<0>();
}
__global__ void copies_at_the_end(float* out) {
  PAGODA_SHARED(float, tile, 256);
  cp_async16(tile + threadIdx.x * 4, out);
  cp_async_commit();
}
__global__ void too_much_dynamic_memory(float* out) {
  pagoda::cuda::SharedMemory shared;
  float* const array = shared.take<float>(1000);
  if (threadIdx.x == 0) out[0] = array[0];
}

class SeededBugs : public testing::TestWithParam<cuemu::Order> {
 protected:
  SeededBugs() { cuemu::options() = {.workers = 1, .order = GetParam(), .seed = 3}; }
  ~SeededBugs() override { cuemu::options() = {}; }

  // What the emulator says of it; empty: nothing.
  std::string run(void (*kernel)(float*)) {
    try {
      PAGODA_LAUNCH(kernel, dim3(2), dim3(64), 0, nullptr, out_);
    } catch (const cuemu::Error& error) {
      return error.what();
    }
    return {};
  }
  alignas(16) float out_[64] = {};
};

void expect_says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    EXPECT_NE(said.find(part), std::string::npos) << "'" << part << "' in: " << said;
  }
}

TEST_P(SeededBugs, Barriers) {
  expect_says(run(divergent_barrier),
              {"kernel ", "block (0,0,0) thread (", "divergent __syncthreads", "bugs_test.cc:"});
  EXPECT_NE(run(barrier_after_exit), "");
  EXPECT_NE(run(exit_before_barrier), "");
}

TEST_P(SeededBugs, WarpCollectives) {
  expect_says(run(mask_without_the_caller), {"the mask lacks the calling lane"});
  expect_says(run(two_collectives_meet), {"divergent warp", "__shfl_xor_sync", "__shfl_down_sync"});
  expect_says(run(half_a_warp_shuffles), {"deadlock", "__syncthreads", "__shfl_xor_sync"});
  EXPECT_NE(run(overlapping_masks), "");
  expect_says(run(reads_a_lane_outside_of_the_mask), {"lane 20"});
  expect_says(run(waits_for_a_part_of_a_warp), {"deadlock", "thread (5,0,0)"});
}

TEST_P(SeededBugs, Memory) {
  expect_says(run(misaligned_read), {"16 bytes is not aligned"});
  expect_says(run(misaligned_copy), {"cp.async", "isn't aligned"});
  expect_says(run(copies_at_the_end), {"under way"});
  expect_says(run(too_much_dynamic_memory), {"dynamic shared memory", "launched with 0"});
}

TEST_P(SeededBugs, Launches) {
  const auto launch = [](dim3 grid, dim3 block, size_t shared) {
    cuemu::launch("any", grid, block, shared, [] {});
  };
  EXPECT_THROW(launch(dim3(1), dim3(1025), 0), cuemu::Error);
  EXPECT_THROW(launch(dim3(1), dim3(0), 0), cuemu::Error);
  EXPECT_THROW(launch(dim3(0), dim3(32), 0), cuemu::Error);
  EXPECT_THROW(launch(dim3(1, 65536), dim3(32), 0), cuemu::Error);
  EXPECT_THROW(launch(dim3(1), dim3(32), 232449), cuemu::Error);
}

INSTANTIATE_TEST_SUITE_P(Orders, SeededBugs,
                         testing::Values(cuemu::Order::kForward, cuemu::Order::kReverse,
                                         cuemu::Order::kRandom));

// ---- what only a wrong value or a sanitizer shows ----

__global__ void reads_before_the_copy_lands(const float* in, float* out, bool waits) {
  PAGODA_SHARED(float, tile, 256);
  cp_async16(tile + threadIdx.x * 4, in + threadIdx.x * 4);
  cp_async_commit();
  if (waits) cp_async_wait<0>();
  out[threadIdx.x] = tile[threadIdx.x * 4];
  cp_async_wait<0>();
}

TEST(SeededValues, ACopyThatIsNotWaitedForIsNan) {
  alignas(16) float in[256];
  float out[64];
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
  PAGODA_LAUNCH(reads_before_the_copy_lands, dim3(1), dim3(64), 0, nullptr, in, out, true);
  EXPECT_EQ(out[63], 252);
  PAGODA_LAUNCH(reads_before_the_copy_lands, dim3(1), dim3(64), 0, nullptr, in, out, false);
  EXPECT_TRUE(std::isnan(out[63]));
}

__global__ void reads_what_nobody_wrote(float* out) {
  PAGODA_SHARED(float, tile, 64);
  out[threadIdx.x] = tile[threadIdx.x];
}

TEST(SeededValues, SharedMemoryBeginsAsNan) {
  float out[64] = {};
  PAGODA_LAUNCH(reads_what_nobody_wrote, dim3(1), dim3(64), 0, nullptr, out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[63]));
}

// Overruns, which the address sanitizer sees, and races, which the thread sanitizer does: each ends
// the process.
__global__ void no_fault(float* out) {
  PAGODA_SHARED(float, tile, 64);
  tile[threadIdx.x] = 1;
  __syncthreads();
  const float mine = tile[63 - threadIdx.x];
  __syncthreads();
  tile[threadIdx.x] = mine + __shfl_xor_sync(~0U, mine, 1);
  __syncthreads();
  atomicAdd(out + 1, tile[63 - threadIdx.x]);
}

float* heap(int n) { return new (std::align_val_t(16)) float[static_cast<size_t>(n)](); }

void launch_alone(void (*kernel)(float*), int n_floats) {
  cuemu::options().workers = 1;
  float* const out = heap(n_floats);
  PAGODA_LAUNCH(kernel, dim3(2), dim3(64), 0, nullptr, out);
  operator delete[](out, std::align_val_t(16));
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void shared_overrun(float* out) {
  PAGODA_SHARED(float, array, 64);
  float* const tile = array;  // whose bounds the compiler doesn't know
  tile[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void neighbouring_arrays(float* out) {
  PAGODA_SHARED(float, array, 32);
  PAGODA_SHARED(float, second, 32);
  const float* const first = array;
  if (threadIdx.x < 32) second[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = threadIdx.x < 32 ? 0 : first[threadIdx.x];
}
__global__ void global_overrun(float* out) { out[threadIdx.x + 1] = 1; }

TEST(SeededOverrunsDeathTest, AreSeen) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(launch_alone(shared_overrun, 64), "heap-buffer-overflow");
  EXPECT_DEATH(launch_alone(neighbouring_arrays, 64), "heap-buffer-overflow");
  EXPECT_DEATH(launch_alone(global_overrun, 64), "heap-buffer-overflow");
}
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_options() { return "halt_on_error=1"; }

__global__ void no_barrier(float* out) {
  PAGODA_SHARED(float, tile, 64);
  tile[threadIdx.x] = 1;
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
// Right values whatever the order: only the race shows that the refill comes too early.
__global__ void no_syncwarp(const float* in, float* out) {
  PAGODA_SHARED(float, tile, 128);
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    cp_async16(tile + threadIdx.x * 4, in + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    sum += tile[(31 - threadIdx.x) * 4];
  }
  out[threadIdx.x] = sum;
}
__global__ void blocks_write_one_word(float* out) {
  if (threadIdx.x == 0) out[0] = static_cast<float>(blockIdx.x);
}
void launch_ring() {
  cuemu::options().workers = 1;
  float* const in = heap(128);
  float* const out = heap(32);
  PAGODA_LAUNCH(no_syncwarp, dim3(1), dim3(32), 0, nullptr, static_cast<const float*>(in), out);
}

TEST(SeededRacesDeathTest, AreSeen) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(launch_alone(no_barrier, 64), "data race");
  EXPECT_DEATH(launch_ring(), "data race");
  EXPECT_DEATH(launch_alone(blocks_write_one_word, 64), "data race");
}
#endif

TEST(SeededValues, ARightKernelIsLeftAlone) {
  for (const int workers : {1, 2}) {
    cuemu::options().workers = workers;
    float* const out = heap(64);
    PAGODA_LAUNCH(no_fault, dim3(8), dim3(64), 0, nullptr, out);
    EXPECT_EQ(out[1], 8 * 64 * 2);
    operator delete[](out, std::align_val_t(16));
  }
  launch_alone(no_fault, 64);
  cuemu::options() = {};
}

}  // namespace
