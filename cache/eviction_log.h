// What has left the cache altogether, remembered for a while, so that a miss can be explained.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/identity.h"

namespace pagoda::cache {

// Why a block's last copy went.
enum class Cause : uint8_t {
  kDeviceRoom,  // its place on the device was needed, and no tier below had it
  kHostRoom,    // the same in the host tier
  kSsdRoom,     // its segment was cleaned, or failed
  kDamaged,     // a tier could not give it back whole
  kDropped,     // on request
  kIdle,        // its session was idle; a tier below has it
};

inline const char* cause_name(Cause cause) {
  switch (cause) {
    case Cause::kDeviceRoom:
      return "device_room";
    case Cause::kHostRoom:
      return "host_room";
    case Cause::kSsdRoom:
      return "ssd_room";
    case Cause::kDamaged:
      return "damaged";
    case Cause::kDropped:
      return "dropped";
    case Cause::kIdle:
      return "idle";
  }
  return "";
}
inline constexpr std::array kCauses = {Cause::kDeviceRoom, Cause::kHostRoom, Cause::kSsdRoom,
                                       Cause::kDamaged,    Cause::kDropped,  Cause::kIdle};

// One thread. Remembers the last `capacity` blocks.
class EvictionLog {
 public:
  explicit EvictionLog(size_t capacity) : ring_(capacity) {}

  struct Entry {
    int64_t at_us = 0;
    Cause cause = Cause::kDeviceRoom;
  };
  void add(const BlockKey& key, Entry entry) {
    Slot& slot = ring_[next_];
    if (slot.is_used) {
      // A later entry of the same key stands elsewhere and stays.
      const auto it = by_key_.find(slot.key);
      if (it != by_key_.end() && it->second == next_) by_key_.erase(it);
    }
    slot = {true, key, entry};
    by_key_[key] = next_;
    next_ = (next_ + 1) % ring_.size();
  }
  std::optional<Entry> find(const BlockKey& key) const {
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return std::nullopt;
    return ring_[it->second].entry;
  }

 private:
  struct Slot {
    bool is_used = false;
    BlockKey key{};
    Entry entry;
  };
  std::vector<Slot> ring_;
  size_t next_ = 0;
  absl::flat_hash_map<BlockKey, size_t> by_key_;
};

}  // namespace pagoda::cache
