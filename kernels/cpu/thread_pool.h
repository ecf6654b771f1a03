// A fixed set of compute threads that share out the pieces of one loop at a time.
//
// The calling thread is worker 0 and works too. Workers spin for some tens of microseconds after a
// loop, so that the loops of a step start at once, and then sleep: an idle server uses no
// processor. A loop ends when its pieces are done; a worker that wakes late finds none left and is
// not waited for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace pagoda::cpu {

// One thread at a time calls parallel_for, and never from inside of a loop. No call allocates,
// except scratch() when it grows.
class ThreadPool {
 public:
  explicit ThreadPool(int32_t n_threads);  // at least 1, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t n_threads() const { return n_threads_; }

  // Calls f(int64_t begin, int64_t end, int32_t worker) for pieces of [0, n_items) of `chunk` items
  // (the last may be shorter), each piece once, and returns when all are done. A loop of a single
  // piece runs in the calling thread and wakes nobody.
  template <typename F>
  void parallel_for(int64_t n_items, int64_t chunk, F&& f) {
    using Function = std::remove_reference_t<F>;
    run(
        n_items, chunk,
        [](void* context, int64_t begin, int64_t end, int32_t worker) {
          (*static_cast<Function*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Memory of one worker, 64-byte aligned, with any content; asked for by that worker inside of a
  // loop, or as worker 0 by the calling thread outside. Valid until the worker's next call; it
  // grows to the largest size asked for and stays.
  void* scratch(int32_t worker, size_t bytes);

 private:
  using Body = void (*)(void* context, int64_t begin, int64_t end, int32_t worker);
  struct Scratch {
    void* data = nullptr;
    size_t bytes = 0;
  };

  void run(int64_t n_items, int64_t chunk, Body body, void* context);
  void work(int32_t worker);
  void worker_main(int32_t worker);
  uint32_t wait_for_loop(uint32_t seen);

  const int32_t n_threads_;
  std::unique_ptr<Scratch[]> scratch_;  // [n_threads]

  // The loop that runs. Written by the caller while the ticket is closed; a worker that reads them
  // meanwhile, or before, fails to claim, since the ticket has moved on.
  std::atomic<Body> body_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> n_items_{0};
  std::atomic<int64_t> chunk_{1};

  alignas(64) std::atomic<uint64_t> ticket_{0};  // number of the loop << 32 | next piece
  alignas(64) std::atomic<int64_t> n_done_{0};   // pieces of the loop that are done
  alignas(64) std::atomic<int32_t> n_sleeping_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;  // workers 1 …; last, since they use all the others
};

}  // namespace pagoda::cpu
