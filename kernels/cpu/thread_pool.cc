#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/check.h"

namespace pagoda::cpu {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Longer than the serial parts between the loops of a step, short against the time a person waits.
constexpr std::chrono::microseconds kSpin{80};
constexpr int kPausesPerLook = 32;
constexpr size_t kAlignment = 64;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A ticket with this piece belongs to a loop that is over. One that has just run out of pieces
// would not do: with the values of the next loop, its next piece could look like a real one.
constexpr uint64_t kClosed = 0xFFFFFFFF;

uint32_t loop_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
int64_t piece_of(uint64_t ticket) { return static_cast<int64_t>(ticket & kClosed); }

}  // namespace

ThreadPool::ThreadPool(int32_t n_threads) : n_threads_(n_threads) {
  CHECK_GE(n_threads, 1);
  scratch_ = std::make_unique<Scratch[]>(static_cast<size_t>(n_threads));
  threads_.reserve(static_cast<size_t>(n_threads) - 1);
  for (int32_t worker = 1; worker < n_threads; ++worker) {
    threads_.emplace_back([this, worker] { worker_main(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (int32_t worker = 0; worker < n_threads_; ++worker) std::free(scratch_[worker].data);
}

void* ThreadPool::scratch(int32_t worker, size_t bytes) {
  Scratch& own = scratch_[worker];
  if (own.bytes < bytes) {
    std::free(own.data);
    own.bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    own.data = std::aligned_alloc(kAlignment, own.bytes);
    CHECK(own.data != nullptr);
  }
  return own.data;
}

void ThreadPool::run(int64_t n_items, int64_t chunk, Body body, void* context) {
  CHECK_GE(chunk, 1);
  if (n_items <= 0) return;
  const int64_t n_pieces = (n_items - 1) / chunk + 1;
  if (n_pieces == 1 || n_threads_ == 1) {
    for (int64_t begin = 0; begin < n_items; begin += chunk) {
      body(context, begin, std::min(n_items, begin + chunk), 0);
    }
    return;
  }
  CHECK_LT(n_pieces, static_cast<int64_t>(kClosed));
  // Acquires from every claim there was: no worker that has claimed can have read what follows.
  const uint64_t last = ticket_.fetch_or(kClosed, std::memory_order_acq_rel);
  body_.store(body, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  n_items_.store(n_items, std::memory_order_relaxed);
  chunk_.store(chunk, std::memory_order_relaxed);
  n_done_.store(0, std::memory_order_relaxed);
  const uint64_t loop = loop_of(last) + uint64_t{1};
  // Against the load of n_sleeping_: either a worker that goes to sleep sees the new ticket or it
  // is seen here.
  ticket_.store(loop << 32, std::memory_order_seq_cst);
  if (n_sleeping_.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  work(0);
  // What is left is in the hands of other workers, who may have lost their processor.
  for (int spins = 0; n_done_.load(std::memory_order_acquire) < n_pieces; ++spins) {
    if (spins < 1000) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

// Claims and runs pieces until the loop has none left.
void ThreadPool::work(int32_t worker) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const Body body = body_.load(std::memory_order_relaxed);
    void* context = context_.load(std::memory_order_relaxed);
    const int64_t n_items = n_items_.load(std::memory_order_relaxed);
    const int64_t chunk = chunk_.load(std::memory_order_relaxed);
    const bool closed = piece_of(ticket) == static_cast<int64_t>(kClosed);
    const int64_t begin = closed ? n_items : piece_of(ticket) * chunk;
    if (begin >= n_items) {
      // With the values of a later loop this says nothing, unless the ticket is still the same.
      const uint64_t now = ticket_.load(std::memory_order_acquire);
      if (now == ticket) return;
      ticket = now;
      continue;
    }
    // Success means that the loop was not closed, so that what was read above belongs to it.
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    body(context, begin, std::min(n_items, begin + chunk), worker);
    n_done_.fetch_add(1, std::memory_order_release);
    ++ticket;
  }
}

// Returns the number of a loop that is not `seen`, or `seen` when the pool stops.
uint32_t ThreadPool::wait_for_loop(uint32_t seen) {
  const auto number = [this] { return loop_of(ticket_.load(std::memory_order_seq_cst)); };
  const SteadyClock::time_point until = SteadyClock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (number() != seen) return number();
      pause();
    }
  } while (SteadyClock::now() < until);

  std::unique_lock lock(mutex_);
  n_sleeping_.fetch_add(1, std::memory_order_seq_cst);
  wake_.wait(lock, [&] { return number() != seen || stopping_.load(); });
  n_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  return number();
}

void ThreadPool::worker_main(int32_t worker) {
  uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint32_t loop = wait_for_loop(seen);
    if (loop == seen) continue;
    seen = loop;
    work(worker);
  }
}

}  // namespace pagoda::cpu
