#include "cache/ssd_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagoda::cache {

void SsdIndex::add_segment(Segment segment) {
  const uint64_t number = segment->number;
  CHECK(segments_.emplace(number, std::move(segment)).second);
}

const SsdIndex::Entry* SsdIndex::find(const BlockKey& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

void SsdIndex::touch(const BlockKey& key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return;
  it->second.is_touched = true;
  const auto parent = entries_.find(it->second.parent);
  if (parent != entries_.end()) parent->second.is_child_touched = true;
}

void SsdIndex::insert_dead(const Segment& segment, const SsdRecord& record) {
  segment->placed.push_back({record.block.key, record.block.salt, record.offset, record.bytes()});
}

bool SsdIndex::insert(const Segment& segment, const SsdRecord& record, bool replaces) {
  insert_dead(segment, record);
  const Place place{segment, record.offset, record.bytes()};
  const auto [it, is_new] = entries_.try_emplace(record.block.key);
  Entry& entry = it->second;
  if (!is_new && !replaces) {
    copies_[record.block.key].push_back(place);
    return false;
  }
  if (!is_new) {
    --entry.segment->n_live;
    if (entry.segment->state != SegmentState::kRemoved) {
      copies_[record.block.key].push_back({entry.segment, entry.offset, entry.bytes});
    }
  }
  entry = Entry{.segment = segment,
                .offset = record.offset,
                .bytes = place.bytes,
                .data_bytes = record.data_bytes,
                .parent = record.block.parent,
                .priority = record.block.priority};
  ++segment->n_live;
  return is_new;
}

bool SsdIndex::forget(const BlockKey& key, const Place* at) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  const Place place{it->second.segment, it->second.offset, it->second.bytes};
  if (at != nullptr && (at->segment != place.segment || at->offset != place.offset)) return false;
  --place.segment->n_live;
  entries_.erase(it);
  if (place.segment->state != SegmentState::kRemoved) copies_[key].push_back(place);
  lose(key);
  return true;
}

void SsdIndex::unplace(const Place& place) {
  const auto is_here = [&](const auto& record) { return record.offset == place.offset; };
  std::erase_if(place.segment->placed, is_here);
  std::erase_if(place.segment->records, is_here);
}

std::vector<SsdIndex::Place> SsdIndex::drop(const BlockKey& key) {
  forget(key);
  std::vector<Place> places;
  if (const auto it = copies_.find(key); it != copies_.end()) {
    places = std::move(it->second);
    copies_.erase(it);
  }
  for (const Place& place : places) unplace(place);
  return places;
}

std::vector<SsdIndex::Place> SsdIndex::drop_salt(const base::Digest128& salt) {
  std::vector<Place> places;
  for (const auto& [number, segment] : segments_) {
    std::vector<SsdSegment::Placed> kept;
    for (const SsdSegment::Placed& record : segment->placed) {
      if (record.salt != salt) {
        kept.push_back(record);
        continue;
      }
      places.push_back({segment, record.offset, record.bytes});
      forget(record.key, &places.back());
      if (const auto it = copies_.find(record.key); it != copies_.end()) {
        const Place& dropped = places.back();
        std::erase_if(it->second, [&](const Place& place) {
          return place.segment == dropped.segment && place.offset == dropped.offset;
        });
        if (it->second.empty()) copies_.erase(it);
      }
    }
    segment->placed = std::move(kept);
    std::erase_if(segment->records,
                  [&](const SsdRecord& record) { return record.block.salt == salt; });
  }
  return places;
}

void SsdIndex::remove_segment(const Segment& segment, const absl::flat_hash_set<BlockKey>& kept) {
  segment->state = SegmentState::kRemoved;
  for (const SsdSegment::Placed& record : segment->placed) {
    const Place place{segment, record.offset, record.bytes};
    if (!kept.contains(record.key)) forget(record.key, &place);
    const auto it = copies_.find(record.key);
    if (it == copies_.end()) continue;
    std::erase_if(it->second, [&](const Place& copy) { return copy.segment == segment; });
    if (it->second.empty()) copies_.erase(it);
  }
  segment->placed.clear();
  segment->records.clear();
  segments_.erase(segment->number);
}

void SsdIndex::clear() {
  for (const auto& [key, entry] : entries_) lose(key);
  entries_.clear();
  copies_.clear();
  for (const auto& [number, segment] : segments_) {
    segment->placed.clear();
    segment->records.clear();
    segment->n_live = 0;
  }
}

std::vector<BlockKey> SsdIndex::take_lost() {
  std::vector<BlockKey> lost = std::exchange(lost_, {});
  std::erase_if(lost, [&](const BlockKey& key) { return entries_.contains(key); });
  return lost;
}

}  // namespace pagoda::cache
