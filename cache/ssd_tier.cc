#include "cache/ssd_tier.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cache/ssd_format.h"
#include "cache/ssd_tier_impl.h"

namespace pagoda::cache {
namespace {

constexpr int64_t kFewestSegments = 4;
constexpr int64_t kMostSegments = 512;
constexpr double kDayUs = 24.0 * 3600 * 1e6;
constexpr int64_t kSleepSliceUs = 5'000;
constexpr size_t kMaxSpareBuffers = 8;

absl::Status declined(const char* why) {
  return base::status_error(absl::StatusCode::kResourceExhausted, "SSD tier: {}", why);
}

int64_t smallest_segment(const SsdTierOptions& options) {
  return kSegmentHeaderBytes + record_bytes(options.block_size, options.block_bytes) +
         footer_bytes(1, options.block_size);
}

absl::StatusOr<int64_t> segment_bytes_of(const SsdTierOptions& options) {
  const int64_t smallest = smallest_segment(options);
  if (options.capacity_bytes < kFewestSegments * smallest) {
    return base::invalid_argument(
        "--kv-ssd-size {}: too small for blocks of {} bytes; at least {} are needed",
        options.capacity_bytes, options.block_bytes, kFewestSegments * smallest);
  }
  const int64_t fitting = std::min(options.segment_bytes, options.capacity_bytes / kFewestSegments);
  const int64_t most = std::max(fitting, options.capacity_bytes / kMostSegments);
  return std::max(smallest, most / base::kDiskAlign * base::kDiskAlign);
}

TokenBucket write_budget(const SsdTierOptions& options, int64_t record, int64_t now_us) {
  const int64_t daily = options.daily_bytes > 0 ? options.daily_bytes : options.capacity_bytes;
  // At least a block fits, or nothing could ever be written.
  return {std::max(daily / 4, record), static_cast<double>(daily) / kDayUs, now_us};
}

}  // namespace

SsdTier::Impl::Work::Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {
  std::lock_guard lock(impl_->mutex_);
  ++impl_->n_work_;
}

SsdTier::Impl::Work::~Work() {
  if (impl_ == nullptr) return;  // moved on
  std::lock_guard lock(impl_->mutex_);
  if (--impl_->n_work_ == 0) impl_->idle_.notify_all();
}

SsdTier::Impl::Impl(SsdTierOptions options, int64_t segment_bytes, base::Disk& disk,
                    base::IoQueue& queue, const base::Clock& clock)
    : options_(std::move(options)),
      segment_bytes_(segment_bytes),
      record_bytes_(cache::record_bytes(options_.block_size, options_.block_bytes)),
      disk_(disk),
      queue_(queue),
      clock_(clock),
      health_(options_.stall_us),
      budget_(write_budget(options_, record_bytes_, clock.now_us())) {
  if (const int64_t limit = options_.read_limit_bytes_s; limit > 0) {
    read_limit_.emplace(std::max(limit / 4, record_bytes_), static_cast<double>(limit) / 1e6,
                        clock.now_us());
  }
}

void SsdTier::Impl::start(const SsdFolder& folder) {
  next_segment_ = folder.next_segment;
  for (const uint64_t number : folder.segments) {
    auto segment = std::make_shared<SsdSegment>();
    segment->number = number;
    absl::StatusOr<std::shared_ptr<base::DiskFile>> file = disk_.open(segment_name(number));
    const absl::StatusOr<int64_t> size = file.ok() ? (*file)->size() : file.status();
    if (!size.ok()) {
      spdlog::warn("{}: a segment of the KV cache can't be opened and is left alone: {}",
                   options_.folder, base::message_of(size.status()));
      continue;
    }
    segment->file = *std::move(file);
    segment->bytes = *size;
    index_.add_segment(std::move(segment));
  }
  queue_.run([this, work = Work(shared_from_this())] { scan_next(); });
}

void SsdTier::Impl::close() {
  Segment open;
  {
    std::unique_lock lock(mutex_);
    is_closing_ = true;
    idle_.wait(lock, [&] { return n_work_ == 0; });
    open = open_;
  }
  if (open != nullptr) retire(open);
  // Those that wait for what the scan would have found.
  for (SyncWaiter& waiter : sync_waiters_) {
    waiter.done(absl::UnavailableError("SSD tier: closed before its scan was over"));
  }
}

void SsdTier::Impl::answer(Done done, absl::Status status) {
  queue_.run([work = Work(shared_from_this()), done = std::move(done),
              status = std::move(status)]() mutable { done(std::move(status)); });
}

void SsdTier::Impl::call(std::vector<Answer> answers) {
  for (Answer& answer : answers) answer.done(std::move(answer.status));
}

std::optional<absl::Status> SsdTier::Impl::admit(Staged& staged) {
  const BlockKey& key = staged.record.block.key;
  std::lock_guard lock(mutex_);
  TierStats& counts = counts_.tier;
  ++counts.n_puts;
  if (index_.find(key) != nullptr) return absl::OkStatus();
  if (const auto it = pending_.find(key); it != pending_.end() && !it->second->is_dropped) {
    return absl::OkStatus();
  }
  const char* why = nullptr;
  if (pending_.contains(key)) {
    why = "what was dropped is still under way";
  } else if (health_.is_off(now_us())) {
    why = "switched off after errors";
  } else if (staged_bytes_ > 0 && staged_bytes_ + record_bytes_ > options_.max_staged_bytes) {
    why = "too many writes are under way";
  } else if (!budget_.try_take(record_bytes_, now_us())) {
    counts_.bytes_skipped += record_bytes_;
    why = "today's write budget is used up";
  }
  if (why != nullptr) {
    ++counts.n_put_declined;
    return declined(why);
  }
  staged_bytes_ += record_bytes_;
  staged.pending = std::make_shared<Pending>(Pending{.salt = staged.record.block.salt});
  pending_[key] = staged.pending;
  staged.op = new_op();
  return std::nullopt;
}

void SsdTier::Impl::put(BlockRecord record, std::span<const uint8_t> bytes, Done done) {
  CHECK_EQ(std::ssize(bytes), options_.block_bytes);
  CHECK_EQ(std::ssize(record.tokens), options_.block_size);
  auto staged = std::make_unique<Staged>();
  staged->record.block = std::move(record);
  staged->record.identity = options_.identity;
  staged->record.data_bytes = options_.block_bytes;
  staged->bytes = bytes;
  if (const std::optional<absl::Status> status = admit(*staged)) {
    return answer(std::move(done), *status);
  }
  staged->done = std::move(done);
  post([this, staged = std::move(staged)]() mutable { stage(std::move(staged)); });
}

base::DiskBuffer SsdTier::Impl::take_buffer() {
  {
    std::lock_guard lock(mutex_);
    if (!spare_buffers_.empty()) {
      base::DiskBuffer buffer = std::move(spare_buffers_.back());
      spare_buffers_.pop_back();
      return buffer;
    }
  }
  return base::DiskBuffer(record_bytes_);
}

void SsdTier::Impl::give_buffer(base::DiskBuffer buffer) {
  std::lock_guard lock(mutex_);
  if (buffer.bytes() == record_bytes_ && spare_buffers_.size() < kMaxSpareBuffers) {
    spare_buffers_.push_back(std::move(buffer));
  }
}

void SsdTier::Impl::get(const BlockKey& key, std::span<uint8_t> into, Done done) {
  CHECK_EQ(std::ssize(into), options_.block_bytes);
  auto read = std::make_unique<Read>();
  absl::Status refused;
  bool is_delayed = false;
  bool starts_waiting = false;
  {
    std::lock_guard lock(mutex_);
    ++counts_.tier.n_gets;
    const int64_t now = now_us();
    const SsdIndex::Entry* entry = index_.find(key);
    if (entry == nullptr) {
      refused = absl::NotFoundError("SSD tier: no such block");
    } else if (health_.is_off(now)) {
      refused = absl::UnavailableError("SSD tier: switched off after errors");
    } else {
      read->place = {entry->segment, entry->offset, entry->bytes};
      read->data_bytes = entry->data_bytes;
      read->key = key;
      read->into = into;
      const int64_t wait_us = read_limit_ ? read_limit_->spend(entry->bytes, now) : 0;
      is_delayed = wait_us > 0 || !delayed_.empty();
      if (is_delayed) {
        read->due_us = now + wait_us;
        read->done = std::move(done);
        delayed_.push_back(std::move(read));
        starts_waiting = !std::exchange(is_delaying_, true);
      }
    }
  }
  if (!refused.ok()) return answer(std::move(done), std::move(refused));
  if (starts_waiting) {
    queue_.run([this, work = Work(shared_from_this())] { wait_for_limit(); });
  }
  if (is_delayed) return;
  read->done = std::move(done);
  issue(std::move(read));
}

// One slice of it: one thread of the queue at most sleeps for reads, and never for long, so that
// writes come through. The time that was slept counts even if the clock stands still.
void SsdTier::Impl::wait_for_limit() {
  std::vector<ReadPtr> due;
  int64_t slice_us = 0;
  {
    std::lock_guard lock(mutex_);
    waited_to_us_ = std::max(waited_to_us_, now_us());
    while (!delayed_.empty() && (is_closing_ || delayed_.front()->due_us <= waited_to_us_)) {
      due.push_back(std::move(delayed_.front()));
      delayed_.pop_front();
    }
    is_delaying_ = !delayed_.empty();
    if (is_delaying_) slice_us = std::min(kSleepSliceUs, delayed_.front()->due_us - waited_to_us_);
    waited_to_us_ += slice_us;
  }
  for (ReadPtr& read : due) issue(std::move(read));
  if (slice_us == 0) return;
  if (options_.sleep) {
    options_.sleep(slice_us);
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(slice_us));
  }
  queue_.run([this, work = Work(shared_from_this())] { wait_for_limit(); });
}

void SsdTier::Impl::issue(ReadPtr read) {
  read->buffer = take_buffer();
  {
    std::lock_guard lock(mutex_);
    read->health_op = health_.begin(now_us());
  }
  const std::shared_ptr<base::DiskFile> file = read->place.segment->file;
  const int64_t offset = read->place.offset;
  const auto into = read->buffer.span().first(static_cast<size_t>(read->place.bytes));
  queue_.read(file, offset, into,
              [this, work = Work(shared_from_this()), read = std::move(read)](
                  absl::Status status) mutable { arrived(std::move(read), std::move(status)); });
}

void SsdTier::Impl::arrived(ReadPtr read, absl::Status status) {
  // A file that ends too early is not what it should be; the disk did what it was told.
  const bool is_io_error = !status.ok() && !absl::IsOutOfRange(status);
  {
    std::lock_guard lock(mutex_);
    health_.end(read->health_op, !is_io_error, now_us());
  }
  if (!status.ok()) return conclude(std::move(read), std::move(status), is_io_error);
  // Checksums take their time, and others wait behind a `done` of the queue.
  queue_.run([this, work = Work(shared_from_this()), read = std::move(read)]() mutable {
    absl::Status checked = check_read(*read);
    conclude(std::move(read), std::move(checked), false);
  });
}

absl::Status SsdTier::Impl::check_read(const Read& read) {
  const std::span<const uint8_t> bytes = read.buffer.span();
  const absl::StatusOr<SsdRecord> record =
      check_record(bytes.first(static_cast<size_t>(read.place.bytes)),
                   {read.place.segment->number, read.place.offset, read.key, options_.identity,
                    read.data_bytes});
  if (!record.ok()) return record.status();
  std::ranges::copy(block_of(*record, bytes), read.into.begin());
  return absl::OkStatus();
}

void SsdTier::Impl::conclude(ReadPtr read, absl::Status status, bool is_io_error) {
  give_buffer(std::move(read->buffer));
  absl::Status told;
  {
    std::lock_guard lock(mutex_);
    if (status.ok()) {
      counts_.tier.bytes_read += read->place.bytes;
      index_.touch(read->key);
    } else {
      const bool was_there = index_.forget(read->key, &read->place);
      const std::string what = base::message_of(status);
      if (is_io_error) {
        told = base::status_error(absl::StatusCode::kUnavailable, "SSD tier: {}", what);
      } else if (!was_there) {
        // It was dropped while it was read; zeros are what it should be.
        told = absl::NotFoundError("SSD tier: the block was dropped");
      } else {
        ++counts_.tier.n_errors_checksum;
        told = base::status_error(absl::StatusCode::kDataLoss, "SSD tier: {}", what);
      }
    }
  }
  read->done(std::move(told));
}

void SsdTier::Impl::drop(const BlockKey& key) {
  {
    std::lock_guard lock(mutex_);
    if (!counts_.scan_done) {
      dropped_keys_.insert(key);
      if (!scan_op_) scan_op_ = new_op();
    }
    if (const auto it = pending_.find(key); it != pending_.end()) it->second->is_dropped = true;
    plan_erases(index_.drop(key));
    condemn_odd();
    if (erase_ops_.empty()) return;
  }
  post([this] { erase_planned(); });
}

void SsdTier::Impl::drop_salt(const base::Digest128& salt) {
  {
    std::lock_guard lock(mutex_);
    if (!counts_.scan_done) {
      dropped_salts_.insert(salt);
      if (!scan_op_) scan_op_ = new_op();
    }
    for (const auto& [key, pending] : pending_) {
      if (pending->salt != salt) continue;
      pending->is_dropped = true;
      index_.forget(key);  // one that is being rewritten
    }
    plan_erases(index_.drop_salt(salt));
    condemn_odd();
    if (erase_ops_.empty()) return;
  }
  post([this] { erase_planned(); });
}

void SsdTier::Impl::purge() {
  uint64_t op = 0;
  {
    std::lock_guard lock(mutex_);
    op = new_op();
    for (const auto& [key, pending] : pending_) pending->is_dropped = true;
    index_.clear();
    found_.clear();
    for (const auto& [number, segment] : index_.segments()) {
      // Neither the scan nor the last writes of a segment bring anything back.
      if (segment->state == SegmentState::kUnscanned) segment->state = SegmentState::kClosed;
    }
  }
  post([this, op] { remove_all(op); });
}

void SsdTier::Impl::sync(Done done) {
  {
    std::lock_guard lock(mutex_);
    if (!unsynced_.empty()) {
      sync_waiters_.push_back({*unsynced_.rbegin(), std::move(done)});
      return;
    }
  }
  answer(std::move(done), absl::OkStatus());
}

bool SsdTier::Impl::contains(const BlockKey& key) const {
  std::lock_guard lock(mutex_);
  return index_.find(key) != nullptr;
}

void SsdTier::Impl::touch(const BlockKey& key) {
  std::lock_guard lock(mutex_);
  index_.touch(key);
}

bool SsdTier::Impl::has_budget() const {
  std::lock_guard lock(mutex_);
  return budget_.level(now_us()) >= record_bytes_;
}

std::vector<BlockRecord> SsdTier::Impl::take_found() {
  std::lock_guard lock(mutex_);
  std::vector<BlockRecord> found = std::exchange(found_, {});
  std::erase_if(found, [&](const BlockRecord& record) { return !index_.find(record.key); });
  return found;
}

std::vector<BlockKey> SsdTier::Impl::take_lost() {
  std::lock_guard lock(mutex_);
  return index_.take_lost();
}

SsdStats SsdTier::Impl::stats() const {
  std::lock_guard lock(mutex_);
  SsdStats stats = counts_;
  stats.tier.n_blocks = index_.n_blocks();
  for (const auto& [number, segment] : index_.segments()) stats.tier.bytes += segment->bytes;
  for (const Segment& segment : unremoved_) stats.tier.bytes += segment->bytes;
  stats.tier.capacity_bytes = options_.capacity_bytes;
  stats.tier.n_errors_io = health_.n_errors();
  stats.tier.is_off = health_.is_off(now_us());
  stats.n_segments = static_cast<int64_t>(index_.segments().size() + unremoved_.size());
  stats.budget_bytes = budget_.level(now_us());
  return stats;
}

SsdTier::SsdTier(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<SsdTier>> SsdTier::open(SsdTierOptions options, base::Disk& disk,
                                                       base::IoQueue& queue,
                                                       const base::Clock& clock) {
  CHECK_GT(options.block_bytes, 0);
  CHECK_GT(options.block_size, 0);
  ASSIGN_OR_RETURN(const int64_t segment_bytes, segment_bytes_of(options));
  ASSIGN_OR_RETURN(const SsdFolder folder, open_ssd_folder(disk, options.folder));
  auto impl = std::make_shared<Impl>(std::move(options), segment_bytes, disk, queue, clock);
  impl->start(folder);
  return std::unique_ptr<SsdTier>(new SsdTier(std::move(impl)));
}

SsdTier::~SsdTier() { impl_->close(); }

void SsdTier::put(BlockRecord record, std::span<const uint8_t> bytes, Done done) {
  impl_->put(std::move(record), bytes, std::move(done));
}
void SsdTier::get(const BlockKey& key, std::span<uint8_t> into, Done done) {
  impl_->get(key, into, std::move(done));
}
void SsdTier::drop(const BlockKey& key) { impl_->drop(key); }
TierStats SsdTier::stats() const { return impl_->stats().tier; }
bool SsdTier::contains(const BlockKey& key) const { return impl_->contains(key); }
void SsdTier::touch(const BlockKey& key) { impl_->touch(key); }
void SsdTier::drop_salt(const base::Digest128& salt) { impl_->drop_salt(salt); }
void SsdTier::purge() { impl_->purge(); }
bool SsdTier::has_budget() const { return impl_->has_budget(); }
std::vector<BlockRecord> SsdTier::take_found() { return impl_->take_found(); }
std::vector<BlockKey> SsdTier::take_lost() { return impl_->take_lost(); }
SsdStats SsdTier::ssd_stats() const { return impl_->stats(); }
void SsdTier::sync(Done done) { impl_->sync(std::move(done)); }

}  // namespace pagoda::cache
