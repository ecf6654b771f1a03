// Where slow work goes: reads and writes of files, and copies of large memory, off the threads that
// must not wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/disk.h"

namespace pagoda::base {

// Any thread may call, from within `done` and tasks too. A task is always run. A read, write or
// sync is run, or refused with kUnavailable once the queue has begun to end; its `done` is called
// exactly once, on a thread of the queue, never within the call that gave it, in no particular
// order. What is under way at the same time is not ordered: a sync covers the writes that were done
// before it was given. The bytes stay valid and unchanged (a read's: untouched) until `done`, which
// should be short, as others wait behind it. The destructor waits for all of it; it is not called
// from `done` or a task.
class IoQueue {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  using Task = absl::AnyInvocable<void()>;
  virtual ~IoQueue() = default;
  virtual void read(std::shared_ptr<DiskFile> file, int64_t offset, std::span<uint8_t> into,
                    Done done) = 0;
  virtual void write(std::shared_ptr<DiskFile> file, int64_t offset, std::span<const uint8_t> bytes,
                     Done done) = 0;
  virtual void sync(std::shared_ptr<DiskFile> file, Done done) = 0;
  // Work that takes time: copies, checksums, a scan. It must not wait for an op of the queue, which
  // may need its thread.
  virtual void run(Task task) = 0;
};

// What an op is told that is refused.
absl::Status io_refused();

// What the queues have in common that call the file themselves.
class BlockingIoQueue : public IoQueue {
 public:
  void read(std::shared_ptr<DiskFile> file, int64_t offset, std::span<uint8_t> into,
            Done done) final;
  void write(std::shared_ptr<DiskFile> file, int64_t offset, std::span<const uint8_t> bytes,
             Done done) final;
  void sync(std::shared_ptr<DiskFile> file, Done done) final;
  void run(Task task) final;

 protected:
  // Does the work and tells; told that it is refused, it only tells that.
  using Op = absl::AnyInvocable<void(bool is_refused)>;
  // Has the op called once, soon, and not from here.
  virtual void push(Op op) = 0;
};

// Threads that each wait for one file at a time.
class ThreadIoQueue final : public BlockingIoQueue {
 public:
  explicit ThreadIoQueue(int32_t n_threads);
  ~ThreadIoQueue() override;

 private:
  struct Queued {
    Op op;
    bool is_refused;
  };
  void push(Op op) override;
  void work();

  std::mutex mutex_;
  std::condition_variable filled_;
  // Guarded by mutex_.
  std::deque<Queued> queue_;
  int32_t n_running_ = 0;
  bool is_ending_ = false;

  std::vector<std::thread> threads_;
};

// io_uring where that is allowed and works here, else threads. n_threads are those for tasks, and
// for files where there is no io_uring.
std::unique_ptr<IoQueue> make_io_queue(int32_t n_threads, bool allow_uring);

}  // namespace pagoda::base
