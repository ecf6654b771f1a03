// The KV cache: whose blocks are whose, what can be shared, what may go. It knows tokens and
// blocks, never models or HTTP.
//
// A block is in one of four states:
//
//   free ──try_extend──▶ promised ──commit──▶ in use ──last lease ends──▶ cached ──evict──▶ free
//      └──try_extend──▶ in use ──lease ends before commit──▶ free
//
//   promised  leased to the sequence that will compute it; others of the same scope that begin with
//             the same tokens can wait for it instead of computing it too
//   in use    leased: a tail that only its sequence knows, or a committed path of the tree
//   cached    committed, in the tree, leased by nobody
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "cache/block_pool.h"
#include "cache/identity.h"
#include "cache/radix_tree.h"

namespace pagoda::cache {

struct KvCacheConfig {
  int32_t n_blocks = 0;
  int32_t block_size = kPageTokens;
  int32_t n_groups = 1;
  bool prefix_caching = true;
  base::Digest256 identity{};
};

struct KvCacheStats {
  int32_t n_blocks = 0;
  int32_t n_free = 0;
  int32_t n_cached = 0;
  int32_t n_in_use = 0;
  int32_t n_promised = 0;
  int64_t n_evicted = 0;        // blocks, since the start
  int64_t n_hit_tokens = 0;     // found at acquire, recomputation after preemption left out
  int64_t n_twins_dropped = 0;  // blocks computed twice
};

// What a prompt would find. Lengths are in tokens, whole blocks.
struct Probe {
  int32_t cached_len = 0;
  // Longer than cached_len when a running sequence has promised to compute more of these tokens.
  int32_t promised_len = 0;
  // Blocks of cached_len that can be evicted now and could not after acquire.
  int32_t n_blocks_taken = 0;
};

enum class UseCache : uint8_t {
  kYes,
  kRecompute,  // as kYes, but not counted as a hit: the sequence had this KV before
  kNo,         // match nothing: every row is wanted (prompt log probabilities)
};

class KvCache;

// The right to use the blocks of one sequence. Gives them back when it dies. Engine thread only,
// and not longer than its cache.
class PrefixLease {
 public:
  PrefixLease();
  PrefixLease(PrefixLease&& other) noexcept;
  PrefixLease& operator=(PrefixLease&& other) noexcept;
  ~PrefixLease();

  explicit operator bool() const { return cache_ != nullptr; }
  // Tokens whose KV was there at acquire: the sequence starts at this position.
  int32_t ready_len() const;
  // [n_groups] block tables.
  std::span<const std::vector<BlockId>> tables() const;

 private:
  friend class KvCache;
  struct State;
  PrefixLease(KvCache* cache, std::unique_ptr<State> state);

  KvCache* cache_ = nullptr;
  std::unique_ptr<State> state_;
};

// Engine thread only.
class KvCache {
 public:
  explicit KvCache(KvCacheConfig config);
  ~KvCache();

  // What acquire would find now; changes nothing. A hit leaves at least one token to compute.
  Probe probe(const CacheScope& scope, std::span<const int32_t> tokens, UseCache use) const;

  // Locks the longest committed prefix of `tokens` and promises the rest of its whole blocks.
  // Allocates nothing: never fails.
  PrefixLease acquire(const CacheScope& scope, std::span<const int32_t> tokens, UseCache use);

  // Makes the lease's tables cover n_tokens positions; evicts what nobody uses if it must. False,
  // and nothing has changed, when there are not enough blocks.
  [[nodiscard]] bool try_extend(PrefixLease& lease, int32_t n_tokens);

  // The KV of tokens [0, computed_len) is written: whole blocks of it become shareable. Where the
  // tree has the same already, the tables change over to the tree's blocks.
  void commit(PrefixLease& lease, std::span<const int32_t> tokens, int32_t computed_len);

  void release(PrefixLease lease);

  // Blocks that an extend could take now: free or evictable.
  int32_t n_available() const;
  // Blocks that would be available once this lease ends, at least.
  int32_t n_reclaimable(const PrefixLease& lease) const;
  // Blocks that covering n_tokens would take from n_available().
  int32_t n_blocks_to_cover(const PrefixLease& lease, int32_t n_tokens) const;
  int32_t n_blocks_for(int32_t n_tokens) const;
  int32_t block_size() const { return config_.block_size; }
  bool prefix_caching() const { return config_.prefix_caching; }
  int32_t n_blocks() const { return config_.n_blocks; }
  // The most tokens that one sequence can ever hold.
  int32_t max_tokens() const;

  KvCacheStats stats() const;
  // Dies unless free + cached + in use + promised = all, every block is held exactly once, and the
  // tree is whole. When idle, and after every step in tests.
  void check() const;

 private:
  friend class PrefixLease;
  using LeaseState = PrefixLease::State;

  int32_t max_hit_ordinals(std::span<const int32_t> tokens) const;
  void allocate(std::vector<BlockId>& table);
  void release_state(LeaseState& state);
  void free_blocks(std::span<const BlockId> blocks);
  int32_t n_promised(const LeaseState& state) const;
  void check_leases() const;

  const KvCacheConfig config_;
  BlockPool pool_;
  RadixTree tree_;
  std::vector<LeaseState*> leases_;  // all that live
  std::vector<BlockId> scratch_;
  int64_t n_evicted_ = 0;
  int64_t n_hit_tokens_ = 0;
  int64_t n_twins_dropped_ = 0;
};

}  // namespace pagoda::cache
