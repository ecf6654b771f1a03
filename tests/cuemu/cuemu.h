// Runs CUDA kernels on the CPU, for tests: the same sources that nvcc compiles, one fiber for each
// CUDA thread, blocks shared out over OS threads. What CUDA leaves undefined throws an Error that
// names kernel, block, thread and line: see README.md for the list.
//
// This is the engine; device.h puts CUDA's names in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

#include <cuemu/cuda_types.h>

namespace cuemu {

using Location = std::source_location;

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Which thread of a block goes on next, whenever one waits.
enum class Order { kForward, kReverse, kRandom };

struct Options {
  int workers = 0;  // OS threads; 0: one a core
  Order order = Order::kForward;
  uint64_t seed = 1;  // of kRandom
  // With the thread sanitizer: one context for each thread index and worker instead of one for each
  // thread. Large launches become possible; races between blocks of one worker are no longer seen.
  bool reuse_contexts = false;
};
Options& options();  // not to be changed during a launch

inline constexpr size_t kMaxSharedBytes = 232448;  // 227 KiB, of sm_90 and sm_100
inline constexpr int kMaxBlockThreads = 1024;

// Returns when all blocks are done. Throws the first Error of a thread; what other threads had on
// their stacks is then never destroyed.
void launch(const char* kernel, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
            const std::function<void()>& body);

// ---- of the running CUDA thread ----

struct Thread {
  uint3 index{};
  uint3 block{};
  dim3 block_dim;
  dim3 grid_dim;
  int lane = 0;
  int warp = 0;
};
constinit inline thread_local Thread* t_thread = nullptr;
inline const Thread& self() { return *t_thread; }

[[noreturn]] void fail(const std::string& what);

struct BarrierResult {
  bool all = false;
  bool any = false;
  int count = 0;
};
// __syncthreads and its kin; every thread of the block brings a predicate.
BarrierResult barrier(const char* op, bool predicate, const Location& where);

// A collective of the lanes of `mask`: each brings up to 16 bytes and may read what the others
// brought, until its next collective. Shuffles and the like order no memory, __syncwarp does.
struct Meeting {
  const uint64_t (*values)[2];  // by lane
  uint32_t lanes;               // of the mask, without those that have exited
};
Meeting meet(uint32_t mask, const void* value, size_t bytes, const char* op, bool orders_memory,
             const Location& where);

// An array of shared memory, the same for all threads of a block, filled with 0xFF (NaN) before
// its first use. `tag` tells static arrays apart; null: dynamic memory at `offset`.
void* shared_array(const void* tag, size_t offset, size_t bytes);

// cp.async of 16 bytes: issued, committed in groups, done by whoever waits for the group.
struct AsyncCopy {
  void* to;
  const void* from;
  bool valid;  // else zeros are written and nothing is read
};
void async_issue(const AsyncCopy& copy);
void async_commit();
// The next copy of a group older than the newest `n_pending`; false when there is none.
bool async_take(int n_pending, AsyncCopy* copy);

}  // namespace cuemu
