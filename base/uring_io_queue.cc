#include "base/uring_io_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pagoda::base {
namespace {

// What answers carry in place of a slot.
constexpr uint64_t kNothing = ~uint64_t{0};
constexpr uint64_t kStop = kNothing - 1;

constexpr size_t kMaxTransfer = size_t{1} << 30;  // bytes; an entry has 32 bits for them

// Calls again what a signal interrupted.
int submit(io_uring* ring) {
  int n = io_uring_submit(ring);
  while (n == -EINTR) n = io_uring_submit(ring);
  return n;
}

// Asks the kernel for nothing; its answer carries `data`.
void make_empty(io_uring_sqe* sqe, uint64_t data) {
  io_uring_prep_nop(sqe);
  io_uring_sqe_set_data64(sqe, data);
}

// Sends a first entry through the ring: some sandboxes allow only to make one.
int try_ring(io_uring* ring) {
  make_empty(io_uring_get_sqe(ring), kNothing);
  if (const int n = submit(ring); n != 1) return n < 0 ? n : -EAGAIN;
  io_uring_cqe* cqe = nullptr;
  int error = io_uring_wait_cqe(ring, &cqe);
  while (error == -EINTR) error = io_uring_wait_cqe(ring, &cqe);
  if (error != 0) return error;
  io_uring_cqe_seen(ring, cqe);
  return 0;
}

}  // namespace

UringIoQueue::Ring::~Ring() {
  if (is_open) io_uring_queue_exit(&ring);
}

void UringIoQueue::Op::advance(size_t n) {
  offset += static_cast<int64_t>(n);
  if (is_read) {
    into = into.subspan(n);
  } else {
    bytes = bytes.subspan(n);
  }
}

absl::StatusOr<std::unique_ptr<IoQueue>> UringIoQueue::open(int32_t depth, int32_t n_threads) {
  CHECK_GT(depth, 0);
  auto ring = std::make_unique<Ring>();
  int error = io_uring_queue_init(static_cast<unsigned>(depth), &ring->ring, 0);
  ring->is_open = error == 0;
  if (ring->is_open) error = try_ring(&ring->ring);
  if (error != 0) {
    return status_error(absl::StatusCode::kUnavailable, "io_uring cannot be used here: {}",
                        std::strerror(-error));
  }
  return std::unique_ptr<IoQueue>(new UringIoQueue(std::move(ring), depth, n_threads));
}

UringIoQueue::UringIoQueue(std::unique_ptr<Ring> ring, int32_t depth, int32_t n_threads)
    : ring_(std::move(ring)),
      slots_(static_cast<size_t>(depth)),
      threads_(n_threads),
      reaper_([this] { reap(); }) {
  std::lock_guard lock(mutex_);
  for (int32_t slot = 0; slot < depth; ++slot) free_slots_.push_back(slot);
}

UringIoQueue::~UringIoQueue() {
  {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    idle_.wait(lock, [this] { return waiting_.empty() && free_slots_.size() == slots_.size(); });
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_->ring);
    CHECK(sqe != nullptr);
    make_empty(sqe, kStop);
    // A kernel that is short of memory takes it later.
    while (submit(&ring_->ring) < 0 || io_uring_sq_ready(&ring_->ring) > 0) {
      std::this_thread::yield();
    }
  }
  reaper_.join();
}

void UringIoQueue::read(std::shared_ptr<DiskFile> file, int64_t offset, std::span<uint8_t> into,
                        Done done) {
  check_disk_aligned(offset, into);
  give({std::move(file), offset, into, {}, std::move(done), true});
}

void UringIoQueue::write(std::shared_ptr<DiskFile> file, int64_t offset,
                         std::span<const uint8_t> bytes, Done done) {
  check_disk_aligned(offset, bytes);
  give({std::move(file), offset, {}, bytes, std::move(done), false});
}

void UringIoQueue::sync(std::shared_ptr<DiskFile> file, Done done) {
  {
    std::lock_guard lock(mutex_);
    if (!is_ending_) return threads_.sync(std::move(file), std::move(done));
  }
  threads_.run([done = std::move(done)]() mutable { done(io_refused()); });
}

void UringIoQueue::run(Task task) { threads_.run(std::move(task)); }

void UringIoQueue::give(Op op) {
  {
    std::lock_guard lock(mutex_);
    if (!is_ending_) {
      if (op.file->descriptor() < 0 || op.left() == 0) return hand_over(std::move(op));
      waiting_.push_back(std::move(op));
      return start_waiting();
    }
  }
  threads_.run([done = std::move(op.done)]() mutable { done(io_refused()); });
}

void UringIoQueue::hand_over(Op op) {
  if (op.is_read) {
    threads_.read(std::move(op.file), op.offset, op.into, std::move(op.done));
  } else {
    threads_.write(std::move(op.file), op.offset, op.bytes, std::move(op.done));
  }
}

void UringIoQueue::start_waiting() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[static_cast<size_t>(slot)] = std::move(waiting_.front());
    waiting_.pop_front();
    if (!try_submit(slot)) hand_over(take(slot));
  }
}

bool UringIoQueue::try_submit(int32_t slot) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_->ring);
  if (sqe == nullptr) return false;
  const Op& op = slots_[static_cast<size_t>(slot)];
  const auto n = static_cast<unsigned>(std::min(op.left(), kMaxTransfer));
  const auto offset = static_cast<uint64_t>(op.offset);
  if (op.is_read) {
    io_uring_prep_read(sqe, op.file->descriptor(), op.into.data(), n, offset);
  } else {
    io_uring_prep_write(sqe, op.file->descriptor(), op.bytes.data(), n, offset);
  }
  io_uring_sqe_set_data64(sqe, static_cast<uint64_t>(slot));
  submit(&ring_->ring);
  if (io_uring_sq_ready(&ring_->ring) == 0) return true;
  // The kernel has not taken it. The entry can't be taken back, but it can be made empty; it goes
  // with the next one.
  make_empty(sqe, kNothing);
  return false;
}

UringIoQueue::Op UringIoQueue::take(int32_t slot) {
  free_slots_.push_back(slot);
  return std::exchange(slots_[static_cast<size_t>(slot)], Op());
}

void UringIoQueue::reap() {
  while (true) {
    io_uring_cqe* cqe = nullptr;
    const int error = io_uring_wait_cqe(&ring_->ring, &cqe);
    if (error == -EINTR || error == -EAGAIN) continue;
    CHECK_EQ(error, 0);
    const uint64_t data = cqe->user_data;
    const int32_t result = cqe->res;
    io_uring_cqe_seen(&ring_->ring, cqe);
    if (data == kStop) return;
    if (data != kNothing) complete(static_cast<int32_t>(data), result);
  }
}

void UringIoQueue::complete(int32_t slot, int32_t result) {
  Op op;
  {
    std::lock_guard lock(mutex_);
    Op& current = slots_[static_cast<size_t>(slot)];
    // A transfer that ended inside a unit of kDiskAlign is continued from that unit's start.
    const int64_t n = std::max(result, 0) / kDiskAlign * kDiskAlign;
    current.advance(static_cast<size_t>(n));
    if (n > 0 && current.left() > 0 && try_submit(slot)) return;
    op = take(slot);
    start_waiting();
    // Told while the lock is held: the destructor may end as soon as it is free. What follows here
    // is over before it has joined this thread.
    idle_.notify_one();
  }
  if (op.left() > 0) return hand_over(std::move(op));
  op.done(absl::OkStatus());
}

}  // namespace pagoda::base
