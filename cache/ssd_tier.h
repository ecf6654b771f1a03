// The SSD tier: blocks in append-only segment files of one folder, found again after a restart.
//
//   PATH/lock   FORMAT   segment-0000000000000001.kv …          (ssd_format.h has the bytes)
//
//   put ──▶ [jobs, one at a time] ──stage──▶ write ──▶ key is there ──▶ sync of the segment
//                  │ segment full: footer, sync; oldest segments cleaned; a new file
//   get ──▶ (read limit) ──▶ read ──▶ checks, copy              drop ──▶ [jobs] ──▶ zeros, sync
//
// A record counts only whole: its header and data checksums must hold. Whatever else lies on the
// disk (a torn tail, a lost segment, flipped bits, another format or identity) is a miss.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/io_queue.h"
#include "cache/tier.h"

namespace pagoda::cache {

struct SsdTierOptions {
  std::string folder;  // what messages call it
  int64_t capacity_bytes = int64_t{8} << 30;
  int64_t daily_bytes = 0;  // written a day at most (all writes); 0: the capacity, once
  int64_t reserve_bytes = int64_t{256} << 20;  // of the disk's free space, left alone
  int64_t read_limit_bytes_s = 0;              // 0: none
  // Of a file. Less where four would not fit, more where there would be more than 512 of them.
  int64_t segment_bytes = int64_t{64} << 20;
  int64_t block_bytes = 0;
  int32_t block_size = 0;                        // tokens
  base::Digest256 identity{};                    // records of another are never found
  int64_t max_staged_bytes = int64_t{64} << 20;  // of puts under way; beyond it: declined
  int64_t stall_us = 5'000'000;                  // a read or write that takes longer failed
  std::function<void(int64_t us)> sleep;         // of a read that is over its limit; empty: it
                                                 // really sleeps, on a thread of the queue
};

struct SsdStats {
  TierStats tier;
  int64_t bytes_skipped = 0;    // declined by the daily budget
  int64_t bytes_rewritten = 0;  // by the cleaner: (written) / (written - rewritten) is the
                                // write amplification
  int64_t n_segments = 0;
  int64_t budget_bytes = 0;  // in the token bucket now
  int64_t n_scanned_records = 0;
  int64_t n_scan_rejects = 0;  // odd records met by the scan
  bool scan_done = false;
};

class SsdTier final : public Tier {
 public:
  // Borrows disk, queue and clock. Reads the folder's format file and begins the scan on the queue;
  // the tier can be used at once. A folder that this tier wrote in another format is emptied (an
  // upgrade is a clean miss). kFailedPrecondition: the folder has files of somebody else.
  // kInvalidArgument: a capacity below four blocks and what is around them.
  static absl::StatusOr<std::unique_ptr<SsdTier>> open(SsdTierOptions options, base::Disk& disk,
                                                       base::IoQueue& queue,
                                                       const base::Clock& clock);
  // Waits for what is under way, then writes the open segment's footer. Not on the queue's threads.
  ~SsdTier() override;

  TierKind kind() const override { return TierKind::kSsd; }
  void put(BlockRecord record, std::span<const uint8_t> bytes, Done done) override;
  void get(const BlockKey& key, std::span<uint8_t> into, Done done) override;
  // Forgets it at once; then its bytes on the disk, tokens too, are overwritten with zeros. A put
  // of the key that is under way is declined. A segment with torn records, which could be
  // anybody's, goes as a whole.
  void drop(const BlockKey& key) override;
  TierStats stats() const override;

  bool contains(const BlockKey& key) const;
  // In use again: the cleaner rewrites it rather than drop it.
  void touch(const BlockKey& key);
  // Likewise of all that was written under a salt, whatever its identity.
  void drop_salt(const base::Digest128& salt);
  // Forgets everything at once and removes all segments.
  void purge();
  // Whether a put of one block would be within today's budget.
  bool has_budget() const;

  // What the scan has found since the last call, parents not always before children.
  std::vector<BlockRecord> take_found();
  // Keys that were there and are not any more (cleaned, failed, dropped), since the last call.
  // A key that was put again meanwhile is not told. A loss may be told before the `done` of the put
  // that made, or found, the block.
  std::vector<BlockKey> take_lost();
  SsdStats ssd_stats() const;
  // Tells when all that was put, dropped and purged so far is durable.
  void sync(Done done);

 private:
  class Impl;
  explicit SsdTier(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace pagoda::cache
