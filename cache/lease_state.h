// What is behind a PrefixLease; of KvCache's files alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/kv_cache.h"

namespace pagoda::cache {

// What comes up from below for a lease, by ordinals:
//
//   low ............ landed ............ end
//   claimed, on      all of it is
//   its way          there
struct LeaseRestore {
  struct Item {
    BlockId block;
    BlockKey key{};
    TierKind tier = TierKind::kSsd;
    bool arrived = false;
  };
  TransferId job;
  std::vector<size_t> job_items;  // by the job's index: which of the items
  std::vector<Item> items;  // from end downwards: of ordinal end-1-i/n_groups, group i%n_groups
  size_t n_reported = 0;    // of items
  int32_t end = 0;
  int32_t low = 0;
  int32_t landed = 0;
  int32_t cut = 0;        // nothing below this ordinal comes: a block failed; 0: none did
  bool may_move = false;  // front and restore meet where they meet
  int64_t begin_us = 0;
  int64_t sum_us = 0;  // of the items that arrived
  int64_t first_us = 0;
  double predicted_s = 0;
};

// The tables of a lease, by ordinals:
//
//   0 ........ n_tree ............ promised_end ........ size
//   in the tree    promised: private      private, of the
//   and locked     for now, will be       sequence's own
//                  committed              answer
struct PrefixLease::State {
  CacheScope scope;
  NodeId end;  // of the locked path
  std::vector<std::vector<BlockId>> tables;
  int32_t ready_len = 0;
  int32_t n_tree = 0;
  int32_t promised_end = 0;       // 0 once the promise is kept
  std::vector<int32_t> promised;  // the tokens up to promised_end
  std::vector<BlockCopy> copies;
  std::optional<LeaseRestore> restore;
  bool is_running = false;              // no longer held for one that waits, or for nobody
  std::array<int32_t, 3> came_early{};  // tokens before that, by TierKind: no hits yet
  size_t index = 0;                     // in KvCache::leases_
};

}  // namespace pagoda::cache
