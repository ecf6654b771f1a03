#include "base/worker_pool.h"

#include <cstdint>

namespace pagoda::base {

WorkerPool::WorkerPool(int32_t n_threads, size_t capacity) : queue_(capacity) {
  for (int32_t i = 0; i < n_threads; ++i) {
    threads_.emplace_back([this] {
      while (auto task = queue_.pop()) (*task)();
    });
  }
}

WorkerPool::~WorkerPool() {
  queue_.close();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::try_post(Task task) { return queue_.try_push(task); }

}  // namespace pagoda::base
