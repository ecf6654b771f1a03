#include "base/worker_pool.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pagoda::base {

WorkerPool::WorkerPool(int32_t n_threads, size_t capacity) : queue_(capacity) {
  for (int32_t i = 0; i < n_threads; ++i) {
    threads_.emplace_back([this] {
      while (auto task = queue_.pop()) {
        (*task)();
        // What the task owns goes with it, so a task that is over holds nothing.
        task.reset();
        n_unfinished_.fetch_sub(1);
      }
    });
  }
}

WorkerPool::~WorkerPool() {
  queue_.close();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::try_post(Task task) {
  // Counted first, since a worker may be through with it before the push returns.
  n_unfinished_.fetch_add(1);
  if (queue_.try_push(task)) return true;
  n_unfinished_.fetch_sub(1);
  return false;
}

void WorkerPool::stop() {
  queue_.close();
  std::vector<Task> dropped = queue_.drain();
  const auto n_dropped = static_cast<int64_t>(dropped.size());
  dropped.clear();
  n_unfinished_.fetch_sub(n_dropped);
}

}  // namespace pagoda::base
