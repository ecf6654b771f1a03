#include "base/io_queue.h"

#include <utility>

#include "base/check.h"
#include "base/uring_io_queue.h"

namespace pagoda::base {
namespace {

// Enough for any one disk; what is beyond waits in the queue.
constexpr int32_t kUringDepth = 64;

}  // namespace

absl::Status io_refused() {
  return absl::Status(absl::StatusCode::kUnavailable, "the I/O queue is ending");
}

void BlockingIoQueue::read(std::shared_ptr<DiskFile> file, int64_t offset, std::span<uint8_t> into,
                           Done done) {
  push([file = std::move(file), offset, into, done = std::move(done)](bool is_refused) mutable {
    done(is_refused ? io_refused() : file->read(offset, into));
  });
}

void BlockingIoQueue::write(std::shared_ptr<DiskFile> file, int64_t offset,
                            std::span<const uint8_t> bytes, Done done) {
  push([file = std::move(file), offset, bytes, done = std::move(done)](bool is_refused) mutable {
    done(is_refused ? io_refused() : file->write(offset, bytes));
  });
}

void BlockingIoQueue::sync(std::shared_ptr<DiskFile> file, Done done) {
  push([file = std::move(file), done = std::move(done)](bool is_refused) mutable {
    done(is_refused ? io_refused() : file->sync());
  });
}

void BlockingIoQueue::run(Task task) {
  push([task = std::move(task)](bool) mutable { task(); });
}

ThreadIoQueue::ThreadIoQueue(int32_t n_threads) {
  CHECK_GT(n_threads, 0);
  for (int32_t i = 0; i < n_threads; ++i) threads_.emplace_back([this] { work(); });
}

ThreadIoQueue::~ThreadIoQueue() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  filled_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadIoQueue::push(Op op) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(op), is_ending_});
  }
  filled_.notify_one();
}

void ThreadIoQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    // At the end an op that runs may still give another.
    filled_.wait(lock, [this] { return !queue_.empty() || (is_ending_ && n_running_ == 0); });
    if (queue_.empty()) return;
    ++n_running_;
    {
      Queued next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      next.op(next.is_refused);
      // What the op owns goes here, without the lock.
    }
    lock.lock();
    --n_running_;
    if (is_ending_ && n_running_ == 0) filled_.notify_all();
  }
}

std::unique_ptr<IoQueue> make_io_queue(int32_t n_threads, bool allow_uring) {
  if (allow_uring) {
    auto uring = UringIoQueue::open(kUringDepth, n_threads);
    if (uring.ok()) return *std::move(uring);
  }
  return std::make_unique<ThreadIoQueue>(n_threads);
}

}  // namespace pagoda::base
