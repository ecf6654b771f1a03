// Threads that run small tasks from one bounded queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/queue.h"

namespace pagoda::base {

// Any thread may post. The destructor runs what is queued, then joins; after stop() nothing is
// queued any more.
class WorkerPool {
 public:
  using Task = absl::AnyInvocable<void()>;
  WorkerPool(int32_t n_threads, size_t capacity);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full or the pool is stopped; the task is then dropped.
  [[nodiscard]] bool try_post(Task task);
  // Any thread. Takes no more tasks and drops the queued ones, on the calling thread; those that
  // run go on to their end, which this does not wait for.
  void stop();
  size_t queued() const { return queue_.size(); }
  // Tasks that were taken and are neither over nor dropped.
  int64_t unfinished() const { return n_unfinished_.load(); }

 private:
  BoundedQueue<Task> queue_;
  std::atomic<int64_t> n_unfinished_{0};
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::base
