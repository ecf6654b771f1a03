// The inside of the SSD tier, shared by the files that implement it:
//   ssd_tier.cc     what is asked and told: put's admission, get, drop, counts
//   ssd_writer.cc   jobs: staging, segments, footers, syncs
//   ssd_cleaner.cc  jobs: the scan, cleaning, erasing, purging
//
// One mutex guards all that changes. It is never held across a call of disk, queue or `done`. Jobs
// run one after the other, each as a task of the queue of its own, so what says "job" below has no
// other job beside it; reads, writes, syncs and the scan do run beside it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_health.h"
#include "cache/ssd_index.h"
#include "cache/ssd_segment.h"
#include "cache/ssd_tier.h"
#include "cache/token_bucket.h"

namespace pagoda::cache {

class SsdTier::Impl final : public std::enable_shared_from_this<Impl> {
 public:
  using Segment = SsdIndex::Segment;
  using Place = SsdIndex::Place;
  using Job = absl::AnyInvocable<void()>;

  Impl(SsdTierOptions options, int64_t segment_bytes, base::Disk& disk, base::IoQueue& queue,
       const base::Clock& clock);
  // Opens the segments and begins the scan. Called once, before anything else.
  void start(const SsdFolder& folder);
  // Waits for all work, then finishes the open segment.
  void close();

  void put(BlockRecord record, std::span<const uint8_t> bytes, Done done);
  void get(const BlockKey& key, std::span<uint8_t> into, Done done);
  void drop(const BlockKey& key);
  void drop_salt(const base::Digest128& salt);
  void purge();
  void sync(Done done);
  bool contains(const BlockKey& key) const;
  void touch(const BlockKey& key);
  bool has_budget() const;
  std::vector<BlockRecord> take_found();
  std::vector<BlockKey> take_lost();
  SsdStats stats() const;

 private:
  // Keeps the tier alive, and close() waiting, until a callback is over.
  class Work {
   public:
    explicit Work(std::shared_ptr<Impl> impl);
    ~Work();
    Work(Work&& other) noexcept = default;
    Work& operator=(Work&&) = delete;

   private:
    std::shared_ptr<Impl> impl_;
  };

  // A key on its way to the disk.
  struct Pending {
    base::Digest128 salt{};
    bool is_dropped = false;
  };
  // A block on its way to the disk.
  struct Staged {
    SsdRecord record;
    uint64_t op = 0;                   // 0: it is another's to settle
    std::shared_ptr<Pending> pending;  // shared with pending_, where drops look for it
    std::span<const uint8_t> bytes;    // of a put, the caller's
    Done done;                         // of a put
    base::DiskBuffer buffer;           // header and block, as they go to the disk
    bool is_rewrite = false;           // the cleaner's: `buffer` has the block already
    Segment segment;                   // where it was written to
    uint64_t health_op = 0;
  };
  struct Read {
    Place place;
    BlockKey key{};
    int64_t data_bytes = 0;
    std::span<uint8_t> into;
    Done done;
    base::DiskBuffer buffer;
    int64_t due_us = 0;  // by the read limit
    uint64_t health_op = 0;
  };
  struct SyncWaiter {
    uint64_t last_op = 0;
    Done done;
  };
  struct Answer {
    Done done;
    absl::Status status;
  };
  using Erases = absl::flat_hash_map<Segment, std::vector<Place>>;
  using StagedPtr = std::unique_ptr<Staged>;
  using ReadPtr = std::unique_ptr<Read>;

  // ssd_tier.cc
  // Runs `done` on the queue.
  void answer(Done done, absl::Status status);
  void call(std::vector<Answer> answers);
  // A put's answer where it needs no write; none: it was admitted, and `staged` completed.
  std::optional<absl::Status> admit(Staged& staged);
  void wait_for_limit();
  void issue(ReadPtr read);
  void arrived(ReadPtr read, absl::Status status);
  // The status of a get, its block copied.
  absl::Status check_read(const Read& read);
  void conclude(ReadPtr read, absl::Status status, bool is_io_error);
  base::DiskBuffer take_buffer();
  void give_buffer(base::DiskBuffer buffer);
  int64_t now_us() const { return clock_.now_us(); }

  // ssd_writer.cc
  void post(Job job);
  void run_job();
  // Calls the disk and counts how that went.
  absl::Status timed(absl::FunctionRef<absl::Status()> call);
  // Jobs.
  void stage(StagedPtr staged);
  // The open segment, with room for one record.
  absl::StatusOr<Segment> ensure_open();
  absl::StatusOr<Segment> new_segment();
  // No more is written to it; it gets its footer once the last write is over.
  void retire(const Segment& segment);
  void finish_segment(const Segment& segment);
  void write_record(StagedPtr staged, const Segment& segment);
  // Ends what was not written.
  void fail(StagedPtr staged, const absl::Status& status);
  // Called by the queue.
  void written(StagedPtr staged, absl::Status status);
  void synced(std::vector<uint64_t> ops, uint64_t health_op, const absl::Status& status);
  // A sync of one segment that needs it, unless one is under way.
  void start_sync();
  // Under the lock.
  absl::Status settle_write(Staged& staged, const absl::Status& status);
  void forget_pending(const Staged& staged);
  uint64_t new_op();
  // Ops that are durable, or by their error never will be: the syncs that have waited for them.
  std::vector<Answer> settle(std::span<const uint64_t> ops, const absl::Status& status);

  // ssd_cleaner.cc
  void scan_next();
  // Jobs. `hot`: takes the records that are to be written again; null: none are.
  absl::Status make_room(std::vector<StagedPtr>& hot);
  absl::Status clean(const Segment& segment, std::vector<StagedPtr>* hot);
  absl::Status read_hot(const SsdSegment& segment, Staged& staged);
  void count_fault(const absl::Status& status);
  absl::Status remove_file(const Segment& segment);
  void relieve_full_disk();
  void trim();
  void erase_planned();
  absl::Status erase_in(const Segment& segment, const std::vector<Place>& places);
  absl::Status erase_in_footer(const Segment& segment, const absl::flat_hash_set<int64_t>& kept);
  // What has to go as a whole; OK: no file is left that should have gone.
  absl::Status remove_condemned();
  absl::Status remove_unremoved();
  void remove_all(uint64_t op);
  // Under the lock.
  void take_scan(const Segment& segment, absl::StatusOr<SegmentScan> scan);
  void take_record(const Segment& segment, SsdRecord record);
  bool fits_one_more(int64_t free_bytes) const;
  int64_t taken_bytes() const;
  // The next to go; null: none can.
  Segment pick_victim() const;
  std::vector<StagedPtr> pick_hot(const Segment& segment, int64_t max_bytes);
  void plan_erases(const std::vector<Place>& places);
  // A drop can't tell whether a record that nobody can name is what it has to erase.
  void condemn_odd();

  const SsdTierOptions options_;
  const int64_t segment_bytes_;  // of a file
  const int64_t record_bytes_;
  base::Disk& disk_;
  base::IoQueue& queue_;
  const base::Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  // All below is guarded by mutex_.
  int64_t n_work_ = 0;
  bool is_closing_ = false;
  SsdIndex index_;
  mutable SsdHealth health_;
  mutable TokenBucket budget_;
  std::optional<TokenBucket> read_limit_;
  SsdStats counts_;
  std::vector<base::DiskBuffer> spare_buffers_;

  std::deque<Job> jobs_;
  bool is_job_running_ = false;
  uint64_t next_segment_ = 1;
  Segment open_;                    // null: the next put makes one
  std::vector<Segment> unremoved_;  // cleaned, but the file would not go
  bool is_relieving_ = false;

  absl::flat_hash_map<BlockKey, std::shared_ptr<Pending>> pending_;
  int64_t staged_bytes_ = 0;

  uint64_t next_op_ = 1;
  std::set<uint64_t> unsynced_;  // ops that are not durable yet
  std::deque<SyncWaiter> sync_waiters_;
  std::deque<Segment> dirty_;  // have ops to be synced
  bool is_syncing_ = false;

  std::deque<ReadPtr> delayed_;
  bool is_delaying_ = false;
  int64_t waited_to_us_ = 0;  // the time as the delayed reads see it

  Erases erases_;
  std::vector<uint64_t> erase_ops_;
  std::vector<BlockRecord> found_;
  // What was dropped before the scan could find it.
  absl::flat_hash_set<BlockKey> dropped_keys_;
  absl::flat_hash_set<base::Digest128> dropped_salts_;
  std::optional<uint64_t> scan_op_;  // for such a drop: done when the scan is
};

}  // namespace pagoda::cache
