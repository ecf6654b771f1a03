// A place below the device where blocks can lie: host memory, an SSD, later remote storage. It
// keeps opaque bytes by key; which blocks belong together, and which may go, is the radix tree's
// matter.
//
// Never wrong: what a tier gives back has been checked against length, key and checksum. Anything
// odd is an error of that get, which its caller counts as a miss.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/hash.h"
#include "base/ids.h"
#include "cache/identity.h"

namespace pagoda::cache {

enum class TierKind : uint8_t { kDevice, kHost, kSsd };

// What a block is, beside its bytes: enough to find its place in the tree again.
struct BlockRecord {
  BlockKey key{};
  BlockKey parent{};  // of the block before it, or the root key
  GroupId group;
  int32_t priority = 50;        // of retention, 0 … 100: lower goes first
  base::Digest128 salt{};       // XXH3-128 of the scope's salt: what `drop_salt` goes by
  std::vector<int32_t> tokens;  // [block_size]
};

// Counts since the start, bytes with what the tier adds to a block.
struct TierStats {
  int64_t n_blocks = 0;  // now
  int64_t bytes = 0;     // now, dead ones included
  int64_t capacity_bytes = 0;
  int64_t n_puts = 0;
  int64_t n_put_declined = 0;
  int64_t n_gets = 0;
  int64_t bytes_written = 0;
  int64_t bytes_read = 0;
  int64_t n_errors_io = 0;
  int64_t n_errors_checksum = 0;
  bool is_off = false;  // switched off for a while after errors
};

// Any thread may call; every call returns at once and copies nothing. `done` is called exactly
// once, on a thread of the tier.
class Tier {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  virtual ~Tier() = default;
  virtual TierKind kind() const = 0;
  // `bytes` stay valid and unchanged until `done`. kResourceExhausted: declined, no room or budget.
  // A key that is there already is kept, and that is a success.
  virtual void put(BlockRecord record, std::span<const uint8_t> bytes, Done done) = 0;
  // Fills `into` with the whole block. kNotFound: not there (any more). kDataLoss: it was not what
  // it should be; the tier has dropped it. kUnavailable: the tier failed or is off.
  virtual void get(const BlockKey& key, std::span<uint8_t> into, Done done) = 0;
  // Forgets it; an unknown key is no error.
  virtual void drop(const BlockKey& key) = 0;
  virtual TierStats stats() const = 0;
};

}  // namespace pagoda::cache
