// Threads that run small tasks from one bounded queue.
#pragma once

#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/queue.h"

namespace pagoda::base {

// Any thread may post. The destructor runs what is queued, then joins.
class WorkerPool {
 public:
  using Task = absl::AnyInvocable<void()>;
  WorkerPool(int32_t n_threads, size_t capacity);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full; the task is then dropped.
  [[nodiscard]] bool try_post(Task task);
  size_t queued() const { return queue_.size(); }

 private:
  BoundedQueue<Task> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace pagoda::base
