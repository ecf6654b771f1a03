// The emulator's engine. Compiled without the thread sanitizer also where the rest has it: what it
// notes down for itself is then invisible to it, and the edges between CUDA threads are made by
// hand, at barriers and nowhere else. So it calls nothing that the sanitizer intercepts (memcpy,
// memset) on behalf of a CUDA thread.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

#include "block.h"

#ifdef CUEMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef CUEMU_UCONTEXT
// void cuemu_switch(void** save_sp, void* new_sp): keeps what the System V ABI says a callee keeps.
extern "C" void cuemu_switch(void** save_sp, void* new_sp);
asm(R"(
.text
.type cuemu_switch,@function
cuemu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuemu_switch,.-cuemu_switch
)");
#endif

namespace cuemu {
namespace detail {

std::string text_of(const Location& where) {
  const char* slash = std::strrchr(where.file_name(), '/');
  return std::string(slash != nullptr ? slash + 1 : where.file_name()) + ":" +
         std::to_string(where.line());
}

namespace {

std::string coordinates(const uint3& at) {
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}

std::string name_of(const Fiber& fiber) {
  return "block " + coordinates(fiber.block) + " thread " + coordinates(fiber.index);
}

}  // namespace

Error error_of(const Fiber& fiber, const std::string& what) {
  return Error("kernel " + std::string(fiber.owner->kernel) + ", " + name_of(fiber) + ": " + what);
}

namespace {

void drop_shared(Block& block) {
#ifndef CUEMU_TSAN
  for (int i = 0; i < block.n_shared; ++i) std::free(block.shared[i].data);
#endif
  block.n_shared = 0;
  block.shared_bytes = 0;
}

char* map_pages(size_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(pages);
}

void drop_stack(Fiber& fiber) {
  if (fiber.stack == nullptr) return;
#ifdef CUEMU_ASAN
  __asan_unpoison_memory_region(fiber.stack + kGuardBytes, kStackBytes);
#endif
  munmap(fiber.stack, kGuardBytes + kStackBytes);
  fiber.stack = nullptr;
}

}  // namespace

Block::~Block() {
  drop_shared(*this);
#ifdef CUEMU_TSAN
  __tsan_acquire(&end_edge);
  for (int i = 0; i < n_threads; ++i) kept.push_back(fibers[static_cast<size_t>(i)].context);
  void* const mine = __tsan_get_current_fiber();
  for (void* context : kept) {
    if (context == nullptr) continue;
    // What an error left behind never came to the edge at its end.
    __tsan_switch_to_fiber(context, 0);
    __tsan_switch_to_fiber(mine, 0);
    __tsan_destroy_fiber(context);
  }
  for (char* pages : arenas) munmap(pages, kArenaBytes);
#endif
  for (int i = 0; i < n_threads; ++i) drop_stack(fibers[static_cast<size_t>(i)]);
}

namespace {

// ---- switching ----

void switch_to_scheduler(Fiber& fiber, bool is_last) {
  Block& block = *fiber.owner;
  (void)is_last;
#ifdef CUEMU_ASAN
  __sanitizer_start_switch_fiber(is_last ? nullptr : &fiber.fake_stack, block.scheduler_bottom,
                                 block.scheduler_bytes);
#endif
#ifdef CUEMU_TSAN
  __tsan_switch_to_fiber(block.scheduler_context, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef CUEMU_UCONTEXT
  swapcontext(&fiber.registers, &block.scheduler);
#else
  cuemu_switch(&fiber.sp, block.scheduler_sp);
#endif
#ifdef CUEMU_ASAN
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &block.scheduler_bottom,
                                  &block.scheduler_bytes);
#endif
}

void fiber_main() {
  Fiber& fiber = current();
  Block& block = *fiber.owner;
#ifdef CUEMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_bottom, &block.scheduler_bytes);
#endif
#ifdef CUEMU_TSAN
  __tsan_acquire(&block.begin_edge);
#endif
  try {
    (*block.body)();
    if (fiber.n_copies > 0) fail("the kernel has ended with cp.async copies under way");
  } catch (...) {
    if (block.error == nullptr) block.error = std::current_exception();
  }
  fiber.state = State::kDone;
#ifdef CUEMU_TSAN
  __tsan_release(&block.end_edge);
#endif
  switch_to_scheduler(fiber, true);
  std::abort();
}

void prepare(Fiber& fiber) {
#ifdef CUEMU_TSAN
  // A new context must not inherit what another did on the same stack.
  if (!options().reuse_contexts) drop_stack(fiber);
  if (fiber.context == nullptr) fiber.context = __tsan_create_fiber(0);
#endif
  if (fiber.state != State::kDone) drop_stack(fiber);  // it was left behind by an error
  if (fiber.stack == nullptr) {
    fiber.stack = map_pages(kGuardBytes + kStackBytes);
    mprotect(fiber.stack, kGuardBytes, PROT_NONE);
  }
#ifdef CUEMU_UCONTEXT
  getcontext(&fiber.registers);
  fiber.registers.uc_stack.ss_sp = fiber.stack + kGuardBytes;
  fiber.registers.uc_stack.ss_size = kStackBytes;
  fiber.registers.uc_link = nullptr;
  makecontext(&fiber.registers, fiber_main, 0);
#else
  // What the switch pops: six registers, the function, and a return address that is never used.
  void** sp = reinterpret_cast<void**>(fiber.stack + kGuardBytes + kStackBytes - 64);
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(&fiber_main);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  fiber.sp = sp;
#endif
  fiber.state = State::kReady;
  fiber.fake_stack = nullptr;
  fiber.first_copy = fiber.n_copies = fiber.group = 0;
}

void resume(Block& block, Fiber& fiber) {
  t_thread = &fiber;
  fiber.state = State::kReady;
#ifdef CUEMU_ASAN
  __sanitizer_start_switch_fiber(&block.scheduler_fake_stack, fiber.stack + kGuardBytes,
                                 kStackBytes);
#endif
#ifdef CUEMU_TSAN
  __tsan_switch_to_fiber(fiber.context, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef CUEMU_UCONTEXT
  swapcontext(&block.scheduler, &fiber.registers);
#else
  cuemu_switch(&block.scheduler_sp, fiber.sp);
#endif
#ifdef CUEMU_ASAN
  __sanitizer_finish_switch_fiber(block.scheduler_fake_stack, nullptr, nullptr);
#endif
}

}  // namespace

void wait_for(Fiber& fiber, State state, const uint32_t& generation, const char* op,
              const Location& where) {
  fiber.state = state;
  fiber.generation = &generation;
  fiber.waited = generation;
  fiber.op = op;
  fiber.where = where;
  switch_to_scheduler(fiber, false);
}

namespace {

bool can_run(const Fiber& fiber) {
  if (fiber.state == State::kReady) return true;
  return fiber.state != State::kDone && *fiber.generation != fiber.waited;
}

// ---- a block ----

void on_exit(Block& block, Fiber& fiber) {
  --block.n_live;
  Warp& warp = block.warps[static_cast<size_t>(fiber.warp)];
  warp.live &= ~(1U << fiber.lane);
  if (block.barrier.arrived > 0 && block.error == nullptr) {
    block.error = std::make_exception_ptr(error_of(
        fiber, "has ended while others wait in __syncthreads at " + text_of(block.barrier.where)));
  }
  for (int i = 0; i < warp.n_groups; ++i) {
    Group& group = warp.groups[i];
    if (group.arrived == 0) continue;
    group.mask &= ~(1U << fiber.lane);
    if (group.arrived != group.mask) continue;
    group.arrived = 0;
    ++group.generation;
  }
}

// A line for each place where threads wait.
Error deadlock(const Block& block) {
  struct Place {
    const Fiber* first;
    int n;
  };
  std::vector<Place> places;
  for (int i = 0; i < block.n_threads; ++i) {
    const Fiber& fiber = block.fibers[static_cast<size_t>(i)];
    if (fiber.state == State::kDone) continue;
    const auto same = std::find_if(places.begin(), places.end(), [&](const Place& place) {
      return place.first->op == fiber.op && same_place(place.first->where, fiber.where);
    });
    if (same == places.end()) {
      places.push_back({&fiber, 1});
    } else {
      ++same->n;
    }
  }
  std::string what = "kernel " + std::string(block.kernel) + " is in a deadlock:";
  for (const Place& place : places) {
    what += "\n  " + name_of(*place.first);
    if (place.n > 1) what += " and " + std::to_string(place.n - 1) + " more";
    what += std::string(place.n > 1 ? " wait" : " waits") + " in " + place.first->op + " at " +
            text_of(place.first->where);
  }
  return Error(what);
}

void begin_block(Block& block, uint3 index) {
  drop_shared(block);
  block.n_live = block.n_threads;
  block.error = nullptr;
  block.barrier.arrived = 0;
  for (int w = 0; w < block.n_warps; ++w) {
    Warp& warp = block.warps[static_cast<size_t>(w)];
    const int n_lanes = std::min(32, block.n_threads - w * 32);
    warp.live = n_lanes == 32 ? ~0U : (1U << n_lanes) - 1;
    for (int i = 0; i < warp.n_groups; ++i) warp.groups[i].arrived = 0;
    warp.n_groups = 0;
  }
#ifdef CUEMU_TSAN
  block.arena = map_pages(kArenaBytes);
  block.arenas.push_back(block.arena);
#endif
  for (int i = 0; i < block.n_threads; ++i) {
    Fiber& fiber = block.fibers[static_cast<size_t>(i)];
    fiber.block = index;
    prepare(fiber);
  }
#ifdef CUEMU_TSAN
  block.scheduler_context = __tsan_get_current_fiber();
  __tsan_release(&block.begin_edge);
#endif
}

void end_block(Block& block) {
#ifdef CUEMU_TSAN
  if (options().reuse_contexts) return;
  for (int i = 0; i < block.n_threads; ++i) {
    void*& context = block.fibers[static_cast<size_t>(i)].context;
    block.kept.push_back(context);
    context = nullptr;
  }
  while (block.kept.size() > kMaxKeptContexts) {
    __tsan_destroy_fiber(block.kept.front());
    block.kept.erase(block.kept.begin());
  }
#else
  (void)block;
#endif
}

void shuffle_order(Block& block, std::vector<int>& order) {
  for (size_t i = order.size() - 1; i > 0; --i) {
    // Knuth's constants for a 64-bit linear congruential generator.
    block.random = block.random * 6364136223846793005ULL + 1442695040888963407ULL;
    std::swap(order[i], order[(block.random >> 33) % (i + 1)]);
  }
}

void run_block(Block& block, uint3 index, std::vector<int>& order) {
  begin_block(block, index);
  while (block.n_live > 0 && block.error == nullptr) {
    if (options().order == Order::kRandom) shuffle_order(block, order);
    bool has_moved = false;
    for (const int i : order) {
      Fiber& fiber = block.fibers[static_cast<size_t>(i)];
      if (!can_run(fiber)) continue;
      has_moved = true;
      resume(block, fiber);
      if (fiber.state == State::kDone) on_exit(block, fiber);
      if (block.error != nullptr) break;
    }
    if (!has_moved) block.error = std::make_exception_ptr(deadlock(block));
  }
  end_block(block);
}

struct Launch {
  const char* kernel;
  dim3 grid;
  dim3 block;
  size_t dynamic_bytes;
  const std::function<void()>& body;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> has_failed{false};
  std::mutex mutex;
  std::exception_ptr error;  // the first
};

std::unique_ptr<Block> make_block(const Launch& launch, int worker) {
  auto block = std::make_unique<Block>();
  block->kernel = launch.kernel;
  block->body = &launch.body;
  block->dynamic_bytes = launch.dynamic_bytes;
  block->n_threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  block->n_warps = (block->n_threads + 31) / 32;
  block->random = options().seed * 977 + static_cast<uint64_t>(worker);
  block->fibers = std::make_unique<Fiber[]>(static_cast<size_t>(block->n_threads));
  block->warps = std::make_unique<Warp[]>(static_cast<size_t>(block->n_warps));
  for (int i = 0; i < block->n_threads; ++i) {
    Fiber& fiber = block->fibers[static_cast<size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    fiber.owner = block.get();
    fiber.index.x = n % launch.block.x;
    fiber.index.y = n / launch.block.x % launch.block.y;
    fiber.index.z = n / (launch.block.x * launch.block.y);
    fiber.block_dim = launch.block;
    fiber.grid_dim = launch.grid;
    fiber.lane = i % 32;
    fiber.warp = i / 32;
    fiber.copies.reset(new Fiber::Copy[kMaxCopies]);
  }
  return block;
}

void work(Launch& launch, int worker) {
  const std::unique_ptr<Block> block = make_block(launch, worker);
  std::vector<int> order(static_cast<size_t>(block->n_threads));
  for (int i = 0; i < block->n_threads; ++i) order[static_cast<size_t>(i)] = i;
  if (options().order == Order::kReverse) std::reverse(order.begin(), order.end());
  const uint64_t n_blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  Thread* const outer = t_thread;
  while (!launch.has_failed.load()) {
    const uint64_t n = launch.next.fetch_add(1, std::memory_order_relaxed);
    if (n >= n_blocks) break;
    uint3 index;
    index.x = static_cast<unsigned>(n % launch.grid.x);
    index.y = static_cast<unsigned>(n / launch.grid.x % launch.grid.y);
    index.z = static_cast<unsigned>(n / (uint64_t{launch.grid.x} * launch.grid.y));
    run_block(*block, index, order);
    if (block->error == nullptr) continue;
    std::lock_guard lock(launch.mutex);
    if (launch.error == nullptr) launch.error = block->error;
    launch.has_failed.store(true);
  }
  t_thread = outer;
}

}  // namespace
}  // namespace detail

Options& options() {
  static Options options;
  return options;
}

void launch(const char* kernel, dim3 grid, dim3 block, size_t dynamic_shared_bytes,
            const std::function<void()>& body) {
  const uint64_t n_threads = uint64_t{block.x} * block.y * block.z;
  const std::string name = "kernel " + std::string(kernel) + ": ";
  if (n_threads == 0 || n_threads > kMaxBlockThreads) {
    throw Error(name + "a block has " + std::to_string(n_threads) + " threads, 1 … 1024 are right");
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFF || grid.y > 65535 ||
      grid.z > 65535) {
    throw Error(name + "the grid is (" + std::to_string(grid.x) + ", " + std::to_string(grid.y) +
                ", " + std::to_string(grid.z) + ")");
  }
  if (dynamic_shared_bytes > kMaxSharedBytes) {
    throw Error(name + std::to_string(dynamic_shared_bytes) + " bytes of dynamic shared memory");
  }
  detail::Launch state{kernel, grid, block, dynamic_shared_bytes, body, {}, {}, {}, {}};
  const uint64_t n_blocks = uint64_t{grid.x} * grid.y * grid.z;
  int n_workers = options().workers;
  if (n_workers <= 0)
    n_workers = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  n_workers = static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(n_workers), n_blocks));
  if (n_workers == 1) {
    detail::work(state, 0);
  } else {
    std::vector<std::thread> threads;
    for (int i = 0; i < n_workers; ++i)
      threads.emplace_back([&state, i] { detail::work(state, i); });
    for (std::thread& thread : threads) thread.join();
  }
  if (state.error != nullptr) std::rethrow_exception(state.error);
}

}  // namespace cuemu
