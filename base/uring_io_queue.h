// An I/O queue on io_uring: the kernel reads and writes, and one thread of ours tells of it.
#pragma once

#include <liburing.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/io_queue.h"

namespace pagoda::base {

// Reads and writes of files with a descriptor go to the kernel, at most `depth` at once; what is
// beyond waits here. All else goes to a few threads: tasks, syncs (which io_uring would give to a
// thread of the kernel), other files, and what the kernel would not do whole, where the file's own
// call finds out why.
class UringIoQueue final : public IoQueue {
 public:
  // kUnavailable: the kernel or the container forbids io_uring.
  static absl::StatusOr<std::unique_ptr<IoQueue>> open(int32_t depth, int32_t n_threads = 2);
  ~UringIoQueue() override;

  void read(std::shared_ptr<DiskFile> file, int64_t offset, std::span<uint8_t> into,
            Done done) override;
  void write(std::shared_ptr<DiskFile> file, int64_t offset, std::span<const uint8_t> bytes,
             Done done) override;
  void sync(std::shared_ptr<DiskFile> file, Done done) override;
  void run(Task task) override;

 private:
  struct Ring {
    io_uring ring{};
    bool is_open = false;
    ~Ring();
  };
  struct Op {
    std::shared_ptr<DiskFile> file;
    int64_t offset = 0;
    std::span<uint8_t> into;         // of a read, or
    std::span<const uint8_t> bytes;  // of a write: what is still to do
    Done done;
    bool is_read = false;

    size_t left() const { return is_read ? into.size() : bytes.size(); }
    void advance(size_t n);
  };
  UringIoQueue(std::unique_ptr<Ring> ring, int32_t depth, int32_t n_threads);
  void give(Op op);
  // Calls the file's own read or write, on the threads.
  void hand_over(Op op);
  void reap();
  void complete(int32_t slot, int32_t result);

  // The caller of these holds mutex_.
  void start_waiting();
  // Gives the kernel what is left of the slot's op; false: it takes nothing now.
  bool try_submit(int32_t slot);
  // Takes the op out of its slot, which is free then.
  Op take(int32_t slot);

  const std::unique_ptr<Ring> ring_;  // the submissions: guarded by mutex_; the answers: reaper_'s
  std::mutex mutex_;
  std::condition_variable idle_;
  // All guarded by mutex_.
  std::vector<Op> slots_;  // [depth]: what the kernel has
  std::vector<int32_t> free_slots_;
  std::deque<Op> waiting_;  // for a slot
  bool is_ending_ = false;

  // Ends before all above, which its tasks may still use.
  ThreadIoQueue threads_;
  std::thread reaper_;
};

}  // namespace pagoda::base
