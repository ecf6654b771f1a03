// The emulator's own notes on a running block; of its .cc files alone.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuemu/cuemu.h>

#if !defined(__x86_64__) && !defined(CUEMU_UCONTEXT)
#define CUEMU_UCONTEXT
#endif
#ifdef CUEMU_UCONTEXT
#include <ucontext.h>
#endif
#ifdef CUEMU_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cuemu::detail {

#if defined(CUEMU_ASAN) || defined(CUEMU_TSAN)
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif
constexpr size_t kGuardBytes = 4096;
constexpr int kMaxMasks = 64;    // different ones that the lanes of a warp meet under
constexpr int kMaxShared = 64;   // arrays
constexpr int kMaxCopies = 512;  // cp.async of a thread, under way at once
constexpr size_t kArenaBytes = kMaxSharedBytes + kMaxShared * 256;
// Contexts of the thread sanitizer that are kept after their threads' ends: one that is given back
// is used again at once, and hides races with what it did before.
constexpr size_t kMaxKeptContexts = 3000;

struct Block;

enum class State { kReady, kAtBarrier, kAtWarp, kDone };

struct Fiber : Thread {
  Block* owner = nullptr;
  State state = State::kDone;
  Location where;
  const char* op = "";
  const uint32_t* generation = nullptr;  // what it waits for to differ from `waited`
  uint32_t waited = 0;
  char* stack = nullptr;
  void* fake_stack = nullptr;  // of the address sanitizer
  void* context = nullptr;     // of the thread sanitizer
#ifdef CUEMU_UCONTEXT
  ucontext_t registers;
#else
  void* sp = nullptr;
#endif
  struct Copy {
    AsyncCopy copy;
    int group;
  };
  std::unique_ptr<Copy[]> copies;  // a ring: [first, first + n)
  int first_copy = 0;
  int n_copies = 0;
  int group = 0;  // the one that is open
};

// Lanes that meet under one mask. Two generations of values: who is released may come again before
// the others have read.
struct Group {
  uint32_t mask = 0;
  uint32_t arrived = 0;
  uint32_t generation = 0;
  Location where;
  const char* op = "";
  uint64_t values[2][32][2] = {};
  char edges[2];
};

struct Warp {
  Group groups[kMaxMasks];
  int n_groups = 0;
  uint32_t live = 0;
};

struct Barrier {
  int arrived = 0;
  uint32_t generation = 0;
  Location where;
  BarrierResult results[2];
  char edges[2];
};

struct SharedArray {
  const void* tag;
  size_t offset;
  size_t bytes;
  char* data;
};

struct Block {
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  int n_threads = 0;
  int n_live = 0;
  size_t dynamic_bytes = 0;
  std::unique_ptr<Fiber[]> fibers;
  std::unique_ptr<Warp[]> warps;
  int n_warps = 0;
  Barrier barrier;
  SharedArray shared[kMaxShared];
  int n_shared = 0;
  size_t shared_bytes = 0;
  std::exception_ptr error;
  uint64_t random = 1;

  void* scheduler_fake_stack = nullptr;
  const void* scheduler_bottom = nullptr;
  size_t scheduler_bytes = 0;
#ifdef CUEMU_UCONTEXT
  ucontext_t scheduler;
#else
  void* scheduler_sp = nullptr;
#endif
#ifdef CUEMU_TSAN
  void* scheduler_context = nullptr;
  char begin_edge = 0;
  char end_edge = 0;
  char* arena = nullptr;      // shared memory of the running block
  std::vector<char*> arenas;  // of all blocks, since memory that is used again hides races
  std::vector<void*> kept;    // contexts
#endif
};

inline Fiber& current() { return *static_cast<Fiber*>(t_thread); }

// "file.cc:12"
std::string text_of(const Location& where);
Error error_of(const Fiber& fiber, const std::string& what);
inline bool same_place(const Location& a, const Location& b) {
  return a.line() == b.line() && a.column() == b.column();
}
// Other threads run until `generation` has changed.
void wait_for(Fiber& fiber, State state, const uint32_t& generation, const char* op,
              const Location& where);

}  // namespace cuemu::detail
