// What the SSD tier finds in its folder, and how that leaves it again: scan, cleaning, erasing.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/ssd_tier_impl.h"

namespace pagoda::cache {
namespace {

constexpr size_t kMostFiles = 1024;  // each holds a descriptor
constexpr int64_t kMostHotBytes = int64_t{64} << 20;

}  // namespace

// One segment, the newest of those that are left, and then a task of its own for the next.
void SsdTier::Impl::scan_next() {
  Segment segment;
  {
    std::lock_guard lock(mutex_);
    if (is_closing_) return;
    for (const auto& [number, candidate] : index_.segments()) {
      if (candidate->state == SegmentState::kUnscanned) segment = candidate;
    }
    if (segment == nullptr) {
      counts_.scan_done = true;
      dropped_keys_.clear();
      dropped_salts_.clear();
      if (scan_op_) erase_ops_.push_back(*scan_op_);
      scan_op_.reset();
    }
  }
  if (segment == nullptr) {
    post([this] { erase_planned(); });
    return post([this] { trim(); });
  }
  absl::StatusOr<SegmentScan> scan =
      scan_segment(*segment->file, segment->number, ScanMode::kFooter, [&] {
        std::lock_guard lock(mutex_);
        return is_closing_ || segment->state != SegmentState::kUnscanned;
      });
  bool is_condemned = false;
  {
    std::lock_guard lock(mutex_);
    take_scan(segment, std::move(scan));
    is_condemned = segment->is_condemned;
  }
  if (is_condemned) {
    post([this] { erase_planned(); });
  }
  queue_.run([this, work = Work(shared_from_this())] { scan_next(); });
}

void SsdTier::Impl::take_scan(const Segment& segment, absl::StatusOr<SegmentScan> scan) {
  // Cleaned or purged while it was read, or not read to its end.
  if (segment->state != SegmentState::kUnscanned || absl::IsCancelled(scan.status())) return;
  segment->state = SegmentState::kClosed;
  if (!scan.ok()) {
    health_.error(now_us());
    segment->is_odd = true;
    segment->is_condemned = scan_op_.has_value();
    spdlog::warn("{}: a segment of the KV cache can't be read: {}", options_.folder,
                 base::message_of(scan.status()));
    return;
  }
  segment->bytes = scan->file_bytes;
  segment->footer_offset = scan->footer_offset;
  segment->is_odd = scan->is_odd;
  segment->is_condemned = scan->is_odd && scan_op_.has_value();
  counts_.n_scan_rejects += std::ssize(scan->faults);
  for (SsdRecord& record : scan->records) take_record(segment, std::move(record));
}

void SsdTier::Impl::take_record(const Segment& segment, SsdRecord record) {
  if (dropped_keys_.contains(record.block.key) || dropped_salts_.contains(record.block.salt)) {
    return plan_erases({{segment, record.offset, record.bytes()}});
  }
  if (record.identity != options_.identity) return index_.insert_dead(segment, record);
  const bool is_ours = record.data_bytes == options_.block_bytes &&
                       std::ssize(record.block.tokens) == options_.block_size;
  if (!is_ours) {
    ++counts_.n_scan_rejects;
    return index_.insert_dead(segment, record);
  }
  ++counts_.n_scanned_records;
  if (index_.insert(segment, record, false)) found_.push_back(std::move(record.block));
}

int64_t SsdTier::Impl::taken_bytes() const {
  int64_t taken = 0;
  for (const auto& [number, segment] : index_.segments()) {
    const bool grows =
        segment->state == SegmentState::kOpen || segment->state == SegmentState::kFull;
    taken += grows ? segment_bytes_ : segment->bytes;
  }
  for (const Segment& segment : unremoved_) taken += segment->bytes;
  return taken;
}

bool SsdTier::Impl::fits_one_more(int64_t free_bytes) const {
  return taken_bytes() + segment_bytes_ <= options_.capacity_bytes &&
         free_bytes - segment_bytes_ >= options_.reserve_bytes &&
         index_.segments().size() < kMostFiles;
}

SsdTier::Impl::Segment SsdTier::Impl::pick_victim() const {
  Segment oldest;
  for (const auto& [number, segment] : index_.segments()) {
    const bool is_closed = segment->state == SegmentState::kClosed;
    if (is_closed && segment->n_live == 0) return segment;
    const bool can_go = is_closed || segment->state == SegmentState::kUnscanned;
    if (can_go && oldest == nullptr) oldest = segment;
  }
  return oldest;
}

absl::Status SsdTier::Impl::make_room(std::vector<StagedPtr>& hot) {
  RETURN_IF_ERROR(remove_unremoved());
  // The bytes of a removed file are free only when the last read of it is over.
  int64_t free_bytes = 0;
  RETURN_IF_ERROR(timed([&]() -> absl::Status {
    ASSIGN_OR_RETURN(free_bytes, disk_.free_bytes());
    return absl::OkStatus();
  }));
  while (true) {
    Segment victim;
    {
      std::lock_guard lock(mutex_);
      if (fits_one_more(free_bytes)) return absl::OkStatus();
      victim = pick_victim();
      if (victim == nullptr) {
        return absl::ResourceExhaustedError("SSD tier: the disk has no room for a segment");
      }
      free_bytes += victim->bytes;
    }
    RETURN_IF_ERROR(clean(victim, &hot));
  }
}

std::vector<SsdTier::Impl::StagedPtr> SsdTier::Impl::pick_hot(const Segment& segment,
                                                              int64_t max_bytes) {
  struct Hot {
    BlockKey key;
    base::Digest128 salt;
    SsdIndex::Entry entry;
  };
  std::vector<Hot> all;
  for (const SsdSegment::Placed& record : segment->placed) {
    const SsdIndex::Entry* entry = index_.find(record.key);
    if (entry == nullptr || entry->segment != segment || entry->offset != record.offset) continue;
    if (entry->is_hot()) all.push_back({record.key, record.salt, *entry});
  }
  std::ranges::stable_sort(all, std::greater{}, [](const Hot& hot) { return hot.entry.priority; });
  std::vector<StagedPtr> picked;
  for (const Hot& hot : all) {
    if (max_bytes < record_bytes_) break;
    if (!budget_.try_take(record_bytes_, now_us())) {
      counts_.bytes_skipped += record_bytes_;
      break;
    }
    max_bytes -= record_bytes_;
    auto staged = std::make_unique<Staged>();
    staged->is_rewrite = true;
    staged->record.block.key = hot.key;
    staged->record.offset = hot.entry.offset;
    staged->record.data_bytes = hot.entry.data_bytes;
    staged->pending = std::make_shared<Pending>(Pending{.salt = hot.salt});
    pending_[hot.key] = staged->pending;
    staged->op = new_op();
    picked.push_back(std::move(staged));
  }
  return picked;
}

absl::Status SsdTier::Impl::read_hot(const SsdSegment& segment, Staged& staged) {
  staged.buffer = take_buffer();
  const auto bytes = staged.buffer.span().first(static_cast<size_t>(record_bytes_));
  const int64_t offset = staged.record.offset;
  RETURN_IF_ERROR(timed([&] { return segment.file->read(offset, bytes); }));
  ASSIGN_OR_RETURN(staged.record,
                   check_record(bytes, {segment.number, offset, staged.record.block.key,
                                        options_.identity, staged.record.data_bytes}));
  return absl::OkStatus();
}

void SsdTier::Impl::count_fault(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (absl::IsDataLoss(status)) ++counts_.tier.n_errors_checksum;
}

absl::Status SsdTier::Impl::clean(const Segment& segment, std::vector<StagedPtr>* hot) {
  std::vector<StagedPtr> picked;
  uint64_t op = 0;
  {
    std::lock_guard lock(mutex_);
    if (segment->state == SegmentState::kRemoved) return absl::OkStatus();
    op = new_op();
    absl::flat_hash_set<BlockKey> kept;
    if (hot != nullptr) {
      const int64_t most = std::min(segment_bytes_ / 2, kMostHotBytes);
      picked = pick_hot(segment, most - std::ssize(*hot) * record_bytes_);
      for (const StagedPtr& staged : picked) kept.insert(staged->record.block.key);
    }
    index_.remove_segment(segment, kept);
  }
  for (StagedPtr& staged : picked) {
    const absl::Status status = read_hot(*segment, *staged);
    if (status.ok()) {
      hot->push_back(std::move(staged));
    } else {
      count_fault(status);
      fail(std::move(staged), status);
    }
  }
  // A power failure brings no key back that was cleaned and then dropped.
  const absl::Status status = remove_file(segment);
  std::vector<Answer> answers;
  {
    std::lock_guard lock(mutex_);
    answers = settle({&op, 1}, status);
  }
  call(std::move(answers));
  return status;
}

absl::Status SsdTier::Impl::remove_file(const Segment& segment) {
  const absl::Status status = timed([&] {
    const absl::Status removed = disk_.remove(segment_name(segment->number));
    return removed.ok() || absl::IsNotFound(removed) ? disk_.sync_folder() : removed;
  });
  if (status.ok()) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  unremoved_.push_back(segment);
  return status;
}

absl::Status SsdTier::Impl::remove_unremoved() {
  std::vector<Segment> unremoved;
  {
    std::lock_guard lock(mutex_);
    unremoved = std::exchange(unremoved_, {});
  }
  absl::Status status;
  for (const Segment& segment : unremoved) status.Update(remove_file(segment));
  return status;
}

void SsdTier::Impl::relieve_full_disk() {
  Segment victim;
  {
    std::lock_guard lock(mutex_);
    is_relieving_ = false;
    victim = pick_victim();
  }
  // What fails here is counted, and the disk stays full: puts are declined.
  if (victim != nullptr) clean(victim, nullptr).IgnoreError();
}

void SsdTier::Impl::trim() {
  std::vector<Segment> victims;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, segment] : index_.segments()) {
      if (segment->state == SegmentState::kClosed && segment->placed.empty()) {
        victims.push_back(segment);
      }
    }
  }
  // What fails here is counted, and tried again when room is needed.
  for (const Segment& segment : victims) clean(segment, nullptr).IgnoreError();
  while (true) {
    Segment victim;
    {
      std::lock_guard lock(mutex_);
      if (taken_bytes() <= options_.capacity_bytes) return;
      victim = pick_victim();
    }
    if (victim == nullptr || !clean(victim, nullptr).ok()) return;
  }
}

void SsdTier::Impl::plan_erases(const std::vector<Place>& places) {
  bool is_any = false;
  for (const Place& place : places) {
    if (place.segment->state == SegmentState::kRemoved) continue;
    erases_[place.segment].push_back(place);
    is_any = true;
  }
  if (is_any) erase_ops_.push_back(new_op());
}

void SsdTier::Impl::condemn_odd() {
  bool is_any = false;
  for (const auto& [number, segment] : index_.segments()) {
    if (!segment->is_odd || std::exchange(segment->is_condemned, true)) continue;
    is_any = true;
  }
  // What sync() waits for, if nothing but whole segments goes: also those that would not go before.
  is_any |= !unremoved_.empty();
  if (is_any) erase_ops_.push_back(new_op());
}

void SsdTier::Impl::erase_planned() {
  Erases erases;
  std::vector<uint64_t> ops;
  {
    std::lock_guard lock(mutex_);
    erases = std::exchange(erases_, {});
    ops = std::exchange(erase_ops_, {});
    // Its footer may be torn, and have the tokens too.
    for (const auto& [segment, places] : erases) segment->is_condemned |= segment->is_odd;
  }
  for (const auto& [segment, places] : erases) {
    if (erase_in(segment, places).ok()) continue;
    // What can't be erased goes with its segment.
    std::lock_guard lock(mutex_);
    segment->is_condemned = true;
  }
  const absl::Status status = remove_condemned();
  std::vector<Answer> answers;
  {
    std::lock_guard lock(mutex_);
    const bool waits = std::ranges::any_of(
        index_.segments(), [](const auto& entry) { return entry.second->is_condemned; });
    if (waits) {
      // For the last writes of a segment, after which this runs again.
      erase_ops_.insert(erase_ops_.begin(), ops.begin(), ops.end());
      return;
    }
    answers = settle(ops, status);
  }
  call(std::move(answers));
}

absl::Status SsdTier::Impl::remove_condemned() {
  std::vector<Segment> open;
  std::vector<Segment> closed;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, segment] : index_.segments()) {
      if (!segment->is_condemned || segment->state == SegmentState::kFull) continue;
      (segment->state == SegmentState::kOpen ? open : closed).push_back(segment);
    }
  }
  for (const Segment& segment : open) retire(segment);  // and finish_segment() cleans it
  for (const Segment& segment : closed) clean(segment, nullptr).IgnoreError();
  return remove_unremoved();
}

absl::Status SsdTier::Impl::erase_in(const Segment& segment, const std::vector<Place>& places) {
  absl::flat_hash_set<int64_t> kept;
  bool has_footer = false;
  {
    std::lock_guard lock(mutex_);
    if (segment->state == SegmentState::kRemoved) return absl::OkStatus();
    for (const SsdSegment::Placed& record : segment->placed) kept.insert(record.offset);
    has_footer = segment->footer_offset > 0;
    for (const Place& place : places) {
      counts_.tier.bytes_written += place.bytes;
      budget_.spend(place.bytes, now_us());
    }
  }
  for (const Place& place : places) {
    RETURN_IF_ERROR(timed([&] { return erase_range(*segment->file, place.offset, place.bytes); }));
  }
  if (has_footer) RETURN_IF_ERROR(erase_in_footer(segment, kept));
  return timed([&] { return segment->file->sync(); });
}

absl::Status SsdTier::Impl::erase_in_footer(const Segment& segment,
                                            const absl::flat_hash_set<int64_t>& kept) {
  int64_t offset = 0;
  int64_t n_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    offset = segment->footer_offset;
    n_bytes = segment->bytes - offset;
  }
  const base::DiskBuffer buffer(n_bytes);
  RETURN_IF_ERROR(timed([&] { return segment->file->read(offset, buffer.span()); }));
  ASSIGN_OR_RETURN(SegmentFooter footer, decode_footer(buffer.span(), segment->number, offset));
  std::erase_if(footer.records,
                [&](const SsdRecord& record) { return !kept.contains(record.offset); });
  return timed([&] {
    return write_footer(*segment->file, footer, segment->number, offset, n_bytes).status();
  });
}

void SsdTier::Impl::remove_all(uint64_t op) {
  std::vector<Segment> all;
  {
    std::lock_guard lock(mutex_);
    open_ = nullptr;
    all = std::exchange(unremoved_, {});
    for (const auto& [number, segment] : index_.segments()) all.push_back(segment);
    for (const Segment& segment : all) {
      if (segment->state != SegmentState::kRemoved) index_.remove_segment(segment, {});
    }
  }
  absl::Status status;
  for (const Segment& segment : all) status.Update(remove_file(segment));
  std::vector<Answer> answers;
  {
    std::lock_guard lock(mutex_);
    answers = settle({&op, 1}, status);
  }
  call(std::move(answers));
}

}  // namespace pagoda::cache
