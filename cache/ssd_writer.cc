// The SSD tier's way to the disk: from a put to a record that is durable.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "cache/ssd_tier_impl.h"

namespace pagoda::cache {

void SsdTier::Impl::post(Job job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (std::exchange(is_job_running_, true)) return;
  }
  queue_.run([this, work = Work(shared_from_this())] { run_job(); });
}

// One job and then a task of its own for the next, so that others of the queue get their turn.
void SsdTier::Impl::run_job() {
  Job job;
  {
    std::lock_guard lock(mutex_);
    job = std::move(jobs_.front());
    jobs_.pop_front();
  }
  job();
  job = nullptr;
  {
    std::lock_guard lock(mutex_);
    is_job_running_ = !jobs_.empty();
    if (!is_job_running_) return;
  }
  queue_.run([this, work = Work(shared_from_this())] { run_job(); });
}

absl::Status SsdTier::Impl::timed(absl::FunctionRef<absl::Status()> call) {
  uint64_t op = 0;
  {
    std::lock_guard lock(mutex_);
    op = health_.begin(now_us());
  }
  const absl::Status status = call();
  std::lock_guard lock(mutex_);
  health_.end(op, status.ok() || absl::IsResourceExhausted(status), now_us());
  return status;
}

void SsdTier::Impl::stage(StagedPtr staged) {
  bool is_dropped = false;
  {
    std::lock_guard lock(mutex_);
    is_dropped = staged->pending->is_dropped;
  }
  if (is_dropped) {
    return fail(std::move(staged), absl::ResourceExhaustedError("SSD tier: dropped meanwhile"));
  }
  const absl::StatusOr<Segment> segment = ensure_open();
  if (!segment.ok()) return fail(std::move(staged), segment.status());
  write_record(std::move(staged), *segment);
}

absl::StatusOr<SsdTier::Impl::Segment> SsdTier::Impl::ensure_open() {
  Segment open;
  bool fits = false;
  {
    std::lock_guard lock(mutex_);
    open = open_;
    if (open != nullptr) {
      const int64_t n = open->n_places + 1;
      const int64_t footer = footer_bytes(n, n * options_.block_size);
      fits = open->bytes + record_bytes_ + footer <= segment_bytes_;
    }
  }
  if (fits) return open;
  if (open != nullptr) retire(open);
  return new_segment();
}

absl::StatusOr<SsdTier::Impl::Segment> SsdTier::Impl::new_segment() {
  std::vector<StagedPtr> hot;
  absl::Status status = make_room(hot);
  auto segment = std::make_shared<SsdSegment>();
  if (status.ok()) {
    {
      std::lock_guard lock(mutex_);
      segment->number = next_segment_++;
    }
    status = timed([&]() -> absl::Status {
      ASSIGN_OR_RETURN(segment->file, create_segment(disk_, {segment->number, clock_.unix_s()}));
      return absl::OkStatus();
    });
    if (absl::IsResourceExhausted(status)) relieve_full_disk();
  }
  if (!status.ok()) {
    for (StagedPtr& staged : hot) fail(std::move(staged), status);
    return status;
  }
  {
    std::lock_guard lock(mutex_);
    segment->state = SegmentState::kOpen;
    segment->bytes = kSegmentHeaderBytes;
    index_.add_segment(segment);
    open_ = segment;
    budget_.spend(kSegmentHeaderBytes, now_us());
    counts_.tier.bytes_written += kSegmentHeaderBytes;
  }
  for (StagedPtr& staged : hot) write_record(std::move(staged), segment);
  return segment;
}

void SsdTier::Impl::retire(const Segment& segment) {
  bool is_quiet = false;
  {
    std::lock_guard lock(mutex_);
    if (open_ == segment) open_ = nullptr;
    segment->state = SegmentState::kFull;
    is_quiet = segment->n_in_flight == 0;
  }
  if (is_quiet) finish_segment(segment);
}

void SsdTier::Impl::finish_segment(const Segment& segment) {
  SegmentFooter footer;
  std::vector<uint64_t> ops;
  int64_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    ops = std::exchange(segment->unsynced, {});
    footer = {std::exchange(segment->records, {}), segment->is_odd};
    offset = segment->bytes;
  }
  std::ranges::sort(footer.records, {}, &SsdRecord::offset);
  int64_t n_bytes = 0;
  const absl::Status wrote = timed([&]() -> absl::Status {
    ASSIGN_OR_RETURN(n_bytes, write_footer(*segment->file, footer, segment->number, offset, 0));
    return absl::OkStatus();
  });
  // Without a footer the records are durable all the same.
  const absl::Status status = timed([&] { return segment->file->sync(); });
  std::vector<Answer> answers;
  bool is_condemned = false;
  {
    std::lock_guard lock(mutex_);
    if (segment->state != SegmentState::kRemoved) segment->state = SegmentState::kClosed;
    segment->bytes += n_bytes;
    if (wrote.ok()) segment->footer_offset = offset;
    if (!wrote.ok()) segment->is_odd = true;
    budget_.spend(n_bytes, now_us());
    counts_.tier.bytes_written += n_bytes;
    is_condemned = segment->is_condemned;
    answers = settle(ops, status);
  }
  call(std::move(answers));
  if (is_condemned) erase_planned();
}

void SsdTier::Impl::write_record(StagedPtr staged, const Segment& segment) {
  SsdRecord& record = staged->record;
  staged->segment = segment;
  {
    std::lock_guard lock(mutex_);
    record.offset = segment->bytes;
    segment->bytes += record_bytes_;
    ++segment->n_places;
    ++segment->n_in_flight;
  }
  record.written_s = clock_.unix_s();
  if (!staged->is_rewrite) staged->buffer = take_buffer();
  const std::span<uint8_t> buffer = staged->buffer.span().first(static_cast<size_t>(record_bytes_));
  const std::span<uint8_t> data = buffer.subspan(static_cast<size_t>(record.header_bytes()));
  if (!staged->is_rewrite) {
    record.data_digest = base::xxh3_128(staged->bytes);
    const auto end = std::ranges::copy(staged->bytes, data.begin()).out;
    std::fill(end, data.end(), uint8_t{0});
  }
  encode_record_header(record, segment->number,
                       buffer.first(static_cast<size_t>(record.header_bytes())));
  {
    std::lock_guard lock(mutex_);
    staged->health_op = health_.begin(now_us());
  }
  const int64_t offset = record.offset;
  queue_.write(segment->file, offset, buffer,
               [this, work = Work(shared_from_this()), staged = std::move(staged)](
                   absl::Status status) mutable { written(std::move(staged), std::move(status)); });
}

void SsdTier::Impl::forget_pending(const Staged& staged) {
  if (!staged.is_rewrite) staged_bytes_ -= record_bytes_;
  const auto it = pending_.find(staged.record.block.key);
  if (it != pending_.end() && it->second == staged.pending) pending_.erase(it);
}

void SsdTier::Impl::fail(StagedPtr staged, const absl::Status& status) {
  std::vector<Answer> answers;
  {
    std::lock_guard lock(mutex_);
    forget_pending(*staged);
    budget_.give_back(record_bytes_);
    if (staged->is_rewrite) index_.forget(staged->record.block.key);
    if (!staged->is_rewrite) ++counts_.tier.n_put_declined;
    answers = settle({&staged->op, 1}, absl::OkStatus());
  }
  if (staged->done) staged->done(status);
  call(std::move(answers));
}

absl::Status SsdTier::Impl::settle_write(Staged& staged, const absl::Status& status) {
  const Segment& segment = staged.segment;
  const BlockKey& key = staged.record.block.key;
  const bool is_gone = segment->state == SegmentState::kRemoved;
  if (!status.ok()) segment->is_odd = true;
  if (!status.ok() && !is_gone && staged.pending->is_dropped) {
    // What was written of it has to go, and whoever waits for this write waits for that.
    segment->is_condemned = true;
    erase_ops_.push_back(std::exchange(staged.op, 0));
  }
  if (!status.ok() || is_gone) {
    if (staged.is_rewrite) index_.forget(key);
    if (!status.ok() && !absl::IsResourceExhausted(status)) {
      return base::status_error(absl::StatusCode::kUnavailable, "SSD tier: {}",
                                base::message_of(status));
    }
    if (!staged.is_rewrite) ++counts_.tier.n_put_declined;
    return absl::ResourceExhaustedError("SSD tier: the disk is full, or was purged meanwhile");
  }
  counts_.tier.bytes_written += record_bytes_;
  if (staged.is_rewrite) counts_.bytes_rewritten += record_bytes_;
  if (staged.pending->is_dropped) {
    if (!staged.is_rewrite) ++counts_.tier.n_put_declined;
    plan_erases({{segment, staged.record.offset, record_bytes_}});
    // Whoever waits for this write waits for its erasure.
    erase_ops_.push_back(std::exchange(staged.op, 0));
    return absl::ResourceExhaustedError("SSD tier: dropped meanwhile");
  }
  index_.insert(segment, staged.record, staged.is_rewrite);
  segment->records.push_back(std::move(staged.record));
  if (segment->unsynced.empty()) dirty_.push_back(segment);
  segment->unsynced.push_back(staged.op);
  return absl::OkStatus();
}

void SsdTier::Impl::written(StagedPtr staged, absl::Status status) {
  const Segment segment = staged->segment;
  const bool is_full = absl::IsResourceExhausted(status);
  absl::Status told;
  std::vector<Answer> answers;
  bool finishes = false;
  bool relieves = false;
  bool erases = false;
  give_buffer(std::move(staged->buffer));
  {
    std::lock_guard lock(mutex_);
    health_.end(staged->health_op, status.ok() || is_full, now_us());
    forget_pending(*staged);
    told = settle_write(*staged, status);
    if (!told.ok() && staged->op != 0) answers = settle({&staged->op, 1}, absl::OkStatus());
    --segment->n_in_flight;
    finishes = segment->state == SegmentState::kFull && segment->n_in_flight == 0;
    relieves = is_full && !std::exchange(is_relieving_, true);
    erases = !erase_ops_.empty();
  }
  if (finishes) {
    post([this, segment] { finish_segment(segment); });
  }
  if (relieves) {
    post([this] { relieve_full_disk(); });
  }
  if (erases) {
    post([this] { erase_planned(); });
  }
  start_sync();
  if (staged->done) staged->done(std::move(told));
  call(std::move(answers));
}

void SsdTier::Impl::start_sync() {
  Segment segment;
  std::vector<uint64_t> ops;
  uint64_t health_op = 0;
  {
    std::lock_guard lock(mutex_);
    while (!is_syncing_ && !dirty_.empty() && ops.empty()) {
      segment = std::move(dirty_.front());
      dirty_.pop_front();
      ops = std::exchange(segment->unsynced, {});  // none: its footer's sync has done it
    }
    if (ops.empty()) return;
    is_syncing_ = true;
    health_op = health_.begin(now_us());
  }
  queue_.sync(segment->file,
              [this, work = Work(shared_from_this()), ops = std::move(ops), health_op](
                  absl::Status status) mutable { synced(std::move(ops), health_op, status); });
}

void SsdTier::Impl::synced(std::vector<uint64_t> ops, uint64_t health_op,
                           const absl::Status& status) {
  std::vector<Answer> answers;
  {
    std::lock_guard lock(mutex_);
    is_syncing_ = false;
    health_.end(health_op, status.ok(), now_us());
    answers = settle(ops, status);
  }
  start_sync();
  call(std::move(answers));
}

uint64_t SsdTier::Impl::new_op() {
  unsynced_.insert(next_op_);
  return next_op_++;
}

std::vector<SsdTier::Impl::Answer> SsdTier::Impl::settle(std::span<const uint64_t> ops,
                                                         const absl::Status& status) {
  std::vector<Answer> answers;
  if (ops.empty()) return answers;
  for (const uint64_t op : ops) unsynced_.erase(op);
  const uint64_t first_failed = status.ok() ? next_op_ : std::ranges::min(ops);
  const uint64_t first_unsynced = unsynced_.empty() ? next_op_ : *unsynced_.begin();
  std::erase_if(sync_waiters_, [&](SyncWaiter& waiter) {
    const bool is_failed = waiter.last_op >= first_failed;
    if (!is_failed && waiter.last_op >= first_unsynced) return false;
    answers.push_back({std::move(waiter.done), is_failed ? status : absl::OkStatus()});
    return true;
  });
  return answers;
}

}  // namespace pagoda::cache
