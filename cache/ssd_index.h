// What the SSD tier knows about its folder: segments, and where the block of each key lies in them.
// Bookkeeping alone: it does no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/disk.h"
#include "cache/ssd_format.h"

namespace pagoda::cache {

// A segment's way; kRemoved means that the file has gone or is to go.
//
//   kUnscanned ──scan──▶ kClosed ──────────────▶ kRemoved
//   kOpen ──▶ kFull (its last writes) ──▶ kClosed ──┘
enum class SegmentState : uint8_t { kUnscanned, kOpen, kFull, kClosed, kRemoved };

struct SsdSegment {
  // A record on the disk that was not erased: ours, another identity's, or a copy of no use.
  struct Placed {
    BlockKey key{};
    base::Digest128 salt{};
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  uint64_t number = 0;
  std::shared_ptr<base::DiskFile> file;  // shared with the reads and writes under way
  SegmentState state = SegmentState::kUnscanned;
  int64_t bytes = 0;          // of the file so far
  int64_t n_places = 0;       // given to records, of an open one
  int32_t n_in_flight = 0;    // writes
  int64_t footer_offset = 0;  // 0: none
  bool is_odd = false;        // has bytes of records that `placed` doesn't name
  bool is_condemned = false;  // may have what is to be erased: it has to go as a whole
  int64_t n_live = 0;         // keys whose block lies here
  std::vector<Placed> placed;
  std::vector<SsdRecord> records;  // for the footer, until that is written
  std::vector<uint64_t> unsynced;  // ops that a sync of the file makes durable
};

// Whoever owns it guards it, and all its segments with it.
class SsdIndex {
 public:
  // Shared: reads and writes under way outlive a segment's place in the index.
  using Segment = std::shared_ptr<SsdSegment>;
  struct Entry {
    Segment segment;
    int64_t offset = 0;
    int64_t bytes = 0;       // of the record
    int64_t data_bytes = 0;  // of the block
    BlockKey parent{};
    int32_t priority = 0;
    bool is_touched = false;        // since it was written
    bool is_child_touched = false;  // likewise

    bool is_hot() const { return is_touched || is_child_touched; }
  };
  struct Place {
    Segment segment;
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  void add_segment(Segment segment);
  const std::map<uint64_t, Segment>& segments() const { return segments_; }
  int64_t n_blocks() const { return static_cast<int64_t>(entries_.size()); }

  const Entry* find(const BlockKey& key) const;
  void touch(const BlockKey& key);
  // A record that was written or found. The key's place is the one it has already, unless the new
  // one replaces it; the other is then a copy that only drop() and erasing still know. True: the
  // key was not there.
  bool insert(const Segment& segment, const SsdRecord& record, bool replaces);
  // A record that can't be got, and still has to go when its salt is dropped.
  void insert_dead(const Segment& segment, const SsdRecord& record);

  // The key is lost, its bytes stay where they are. Only if it is at the place, if one is given.
  bool forget(const BlockKey& key, const Place* at = nullptr);
  // Forgets the key or all of a salt, with every copy: what is to be erased.
  std::vector<Place> drop(const BlockKey& key);
  std::vector<Place> drop_salt(const base::Digest128& salt);
  // Takes the segment out. Its keys are lost but for those in `kept`, which are found there until
  // they are written elsewhere.
  void remove_segment(const Segment& segment, const absl::flat_hash_set<BlockKey>& kept);
  void clear();

  // The keys that left since the last call, without those that are back.
  std::vector<BlockKey> take_lost();
  void lose(const BlockKey& key) { lost_.push_back(key); }

 private:
  void unplace(const Place& place);

  std::map<uint64_t, Segment> segments_;
  absl::flat_hash_map<BlockKey, Entry> entries_;
  absl::flat_hash_map<BlockKey, std::vector<Place>> copies_;  // further ones
  std::vector<BlockKey> lost_;
};

}  // namespace pagoda::cache
