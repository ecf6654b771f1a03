#include "cache/host_tier.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "base/hash.h"

namespace pagoda::cache {
namespace {

// Pages that nobody has touched yet, so that the system gives memory only as blocks come.
class Slab {
 public:
  Slab() = default;
  ~Slab() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  absl::Status map(size_t bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      return base::status_error(absl::StatusCode::kResourceExhausted,
                                "the system has no {} bytes of memory for the host tier ({})",
                                bytes, std::strerror(errno));
    }
    base_ = static_cast<uint8_t*>(mapped);
    bytes_ = bytes;
    return absl::OkStatus();
  }

  absl::Status bind(int32_t node) {
    constexpr int32_t kNodes = 1024;  // what a kernel is built for at most
    constexpr int32_t kBits = std::numeric_limits<unsigned long>::digits;
    std::array<unsigned long, kNodes / kBits> nodes{};
    if (node < 0 || node >= kNodes) return no_such_node(node);
    nodes[static_cast<size_t>(node / kBits)] = 1UL << (node % kBits);
    // The kernel reads one bit less than it is told.
    if (syscall(SYS_mbind, base_, bytes_, MPOL_BIND, nodes.data(), kNodes + 1UL, 0U) == 0) {
      return absl::OkStatus();
    }
    if (errno == EINVAL) return no_such_node(node);
    return base::status_error(
        absl::StatusCode::kFailedPrecondition,
        "--kv-host-numa-node {}: this process may not bind memory to a node ({})", node,
        std::strerror(errno));
  }

  uint8_t* base() const { return base_; }

 private:
  static absl::Status no_such_node(int32_t node) {
    return base::invalid_argument("--kv-host-numa-node {}: there is no such node with memory",
                                  node);
  }

  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

// A slot is free, or has one key, whose block is being written (`is_ready` false) or is there. A
// dropped one has left the index; the last copy to end frees it.
class HostTier::Impl : public std::enable_shared_from_this<HostTier::Impl> {
 public:
  Impl(HostTierOptions options, int32_t n_slots, base::IoQueue& queue);

  absl::Status open();
  void close();
  void put(BlockRecord record, std::span<const uint8_t> bytes, Done done);
  void get(const BlockKey& key, std::span<uint8_t> into, Done done);
  void drop(const BlockKey& key);
  TierStats stats() const;
  int32_t n_slots() const { return static_cast<int32_t>(slots_.size()); }

 private:
  struct Slot {
    BlockKey key{};
    base::Digest128 checksum{};
    int32_t n_copies = 0;  // under way, from and to
    bool is_ready = false;
    bool is_dropped = false;
  };

  std::span<uint8_t> bytes_of(int32_t slot) const;
  void answer(absl::Status status, Done done);
  void copy_in(int32_t slot, std::span<const uint8_t> bytes);
  absl::Status copy_out(int32_t slot, std::span<uint8_t> into);
  void remove(int32_t slot);
  void end_copy(int32_t slot);
  void end_call(Done done, absl::Status status);

  const HostTierOptions options_;
  base::IoQueue& queue_;
  Slab slab_;

  mutable std::mutex mutex_;  // of all below, and not of the blocks' bytes
  std::condition_variable quiet_;
  std::vector<Slot> slots_;    // [n_slots]; the checksum belongs to the writer until it is ready
  std::vector<int32_t> free_;  // a stack, so that memory which was touched is used again
  absl::flat_hash_map<BlockKey, int32_t> index_;
  TierStats stats_;
  int32_t n_under_way_ = 0;  // calls whose `done` has not returned
};

HostTier::Impl::Impl(HostTierOptions options, int32_t n_slots, base::IoQueue& queue)
    : options_(options), queue_(queue), slots_(static_cast<size_t>(n_slots)) {
  free_.reserve(slots_.size());
  for (int32_t slot = n_slots - 1; slot >= 0; --slot) free_.push_back(slot);
  stats_.capacity_bytes = n_slots * options_.block_bytes;
}

absl::Status HostTier::Impl::open() {
  RETURN_IF_ERROR(slab_.map(static_cast<size_t>(stats_.capacity_bytes)));
  return options_.numa_node == -1 ? absl::OkStatus() : slab_.bind(options_.numa_node);
}

void HostTier::Impl::close() {
  std::unique_lock lock(mutex_);
  quiet_.wait(lock, [this] { return n_under_way_ == 0; });
}

std::span<uint8_t> HostTier::Impl::bytes_of(int32_t slot) const {
  return {slab_.base() + slot * options_.block_bytes, static_cast<size_t>(options_.block_bytes)};
}

void HostTier::Impl::put(BlockRecord record, std::span<const uint8_t> bytes, Done done) {
  CHECK_EQ(static_cast<int64_t>(bytes.size()), options_.block_bytes);
  std::unique_lock lock(mutex_);
  ++n_under_way_;
  ++stats_.n_puts;
  if (index_.contains(record.key)) {
    lock.unlock();
    return answer(absl::OkStatus(), std::move(done));
  }
  if (free_.empty()) {
    ++stats_.n_put_declined;
    lock.unlock();
    return answer(absl::Status(absl::StatusCode::kResourceExhausted, "the host tier is full"),
                  std::move(done));
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  slots_[static_cast<size_t>(slot)] = Slot{.key = record.key, .n_copies = 1};
  index_.emplace(record.key, slot);
  lock.unlock();
  queue_.run([self = shared_from_this(), slot, bytes, done = std::move(done)]() mutable {
    self->copy_in(slot, bytes);
    self->end_call(std::move(done), absl::OkStatus());
  });
}

void HostTier::Impl::get(const BlockKey& key, std::span<uint8_t> into, Done done) {
  CHECK_EQ(static_cast<int64_t>(into.size()), options_.block_bytes);
  std::unique_lock lock(mutex_);
  ++n_under_way_;
  ++stats_.n_gets;
  const auto it = index_.find(key);
  if (it == index_.end() || !slots_[static_cast<size_t>(it->second)].is_ready) {
    lock.unlock();
    return answer(absl::Status(absl::StatusCode::kNotFound, "the block is not in the host tier"),
                  std::move(done));
  }
  const int32_t slot = it->second;
  ++slots_[static_cast<size_t>(slot)].n_copies;
  lock.unlock();
  queue_.run([self = shared_from_this(), slot, into, done = std::move(done)]() mutable {
    absl::Status status = self->copy_out(slot, into);
    self->end_call(std::move(done), std::move(status));
  });
}

void HostTier::Impl::drop(const BlockKey& key) {
  std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it != index_.end()) remove(it->second);
}

// On the queue, since a `done` never runs inside the call that it answers.
void HostTier::Impl::answer(absl::Status status, Done done) {
  queue_.run(
      [self = shared_from_this(), status = std::move(status), done = std::move(done)]() mutable {
        self->end_call(std::move(done), std::move(status));
      });
}

// The checksum is of what was given, so that it tells of a bad copy too.
void HostTier::Impl::copy_in(int32_t slot, std::span<const uint8_t> bytes) {
  const base::Digest128 checksum = base::xxh3_128(bytes);
  std::memcpy(bytes_of(slot).data(), bytes.data(), bytes.size());
  std::lock_guard lock(mutex_);
  Slot& written = slots_[static_cast<size_t>(slot)];
  written.checksum = checksum;
  written.is_ready = true;
  stats_.bytes_written += options_.block_bytes;
  if (!written.is_dropped) ++stats_.n_blocks;
  end_copy(slot);
}

absl::Status HostTier::Impl::copy_out(int32_t slot, std::span<uint8_t> into) {
  std::memcpy(into.data(), bytes_of(slot).data(), into.size());
  const base::Digest128 checksum = base::xxh3_128(into);
  std::lock_guard lock(mutex_);
  const Slot& read = slots_[static_cast<size_t>(slot)];
  const bool is_good = read.checksum == checksum;
  if (is_good) {
    stats_.bytes_read += options_.block_bytes;
  } else {
    ++stats_.n_errors_checksum;
    if (!read.is_dropped) remove(slot);
  }
  end_copy(slot);
  if (is_good) return absl::OkStatus();
  return absl::Status(absl::StatusCode::kDataLoss, "the block in the host tier has changed");
}

// Takes a slot's key off the index; the lock is held, as for the next.
void HostTier::Impl::remove(int32_t slot) {
  Slot& removed = slots_[static_cast<size_t>(slot)];
  index_.erase(removed.key);
  removed.is_dropped = true;
  if (removed.is_ready) --stats_.n_blocks;
  if (removed.n_copies == 0) free_.push_back(slot);
}

void HostTier::Impl::end_copy(int32_t slot) {
  Slot& copied = slots_[static_cast<size_t>(slot)];
  --copied.n_copies;
  if (copied.is_dropped && copied.n_copies == 0) free_.push_back(slot);
}

void HostTier::Impl::end_call(Done done, absl::Status status) {
  done(std::move(status));
  done = nullptr;  // what it owns goes before close() returns
  std::lock_guard lock(mutex_);
  --n_under_way_;
  quiet_.notify_all();
}

TierStats HostTier::Impl::stats() const {
  std::lock_guard lock(mutex_);
  TierStats stats = stats_;
  stats.bytes = static_cast<int64_t>(slots_.size() - free_.size()) * options_.block_bytes;
  return stats;
}

absl::StatusOr<std::unique_ptr<HostTier>> HostTier::create(HostTierOptions options,
                                                           base::IoQueue& queue) {
  CHECK_GT(options.block_bytes, 0);
  const int64_t n_slots = std::min<int64_t>(options.capacity_bytes / options.block_bytes,
                                            std::numeric_limits<int32_t>::max());
  if (n_slots <= 0) {
    return base::invalid_argument("the host tier's {} bytes don't hold a block, which has {}",
                                  options.capacity_bytes, options.block_bytes);
  }
  auto impl = std::make_shared<Impl>(options, static_cast<int32_t>(n_slots), queue);
  RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<HostTier>(new HostTier(std::move(impl)));
}

HostTier::HostTier(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HostTier::~HostTier() { impl_->close(); }

void HostTier::put(BlockRecord record, std::span<const uint8_t> bytes, Done done) {
  impl_->put(std::move(record), bytes, std::move(done));
}

void HostTier::get(const BlockKey& key, std::span<uint8_t> into, Done done) {
  impl_->get(key, into, std::move(done));
}

void HostTier::drop(const BlockKey& key) { impl_->drop(key); }
TierStats HostTier::stats() const { return impl_->stats(); }
int32_t HostTier::capacity_blocks() const { return impl_->n_slots(); }

}  // namespace pagoda::cache
