// The KV cache: whose blocks are whose, what can be shared, what may go, and what lies in the tiers
// below. It knows tokens and blocks, never models or HTTP.
//
// A block of the device is in one of four states:
//
//   free ──try_extend──▶ promised ──commit──▶ in use ──last lease ends──▶ cached ──evict──▶ free
//      └──try_extend──▶ in use ──lease ends before commit──▶ free
//
//   promised  leased to the sequence that will compute it; others of the same scope that begin with
//             the same tokens can wait for it instead of computing it too
//   in use    leased: a tail that only its sequence knows, a committed path of the tree, or a block
//             that a transfer reads or writes
//   cached    committed, in the tree, leased by nobody
//
// Committed blocks are copied down as they come to be (host: always; SSD: by SsdWrite). What lies
// only below comes up for a lease that wants it, from the end of the prompt downwards, while the
// sequence may compute from the front: see restore().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"
#include "cache/block_pool.h"
#include "cache/cost_model.h"
#include "cache/eviction_log.h"
#include "cache/explain.h"
#include "cache/host_tier.h"
#include "cache/identity.h"
#include "cache/radix_tree.h"
#include "cache/ssd_tier.h"
#include "cache/transfer.h"

namespace pagoda::cache {

// When a block is written to the SSD.
enum class SsdWrite : uint8_t {
  kEager,  // when it is committed
  kReuse,  // when it is used a second time
  kEvict,  // when it is about to leave the device, or its session is idle
  kAuto,   // as kEager within the day's budget, beyond it as kReuse
};

// What lies below the device; borrowed, null where there is none. `transfer` is there when one of
// the others is.
struct KvTiers {
  TransferEngine* transfer = nullptr;
  HostTier* host = nullptr;
  SsdTier* ssd = nullptr;
  SsdWrite ssd_write = SsdWrite::kAuto;
  RestorePolicy restore_policy = RestorePolicy::kAuto;
};

struct KvCacheConfig {
  int32_t n_blocks = 0;
  int32_t block_size = kPageTokens;
  int32_t n_groups = 1;
  bool prefix_caching = true;
  base::Digest256 identity{};
  KvTiers tiers{};
};

struct KvCacheStats {
  int32_t n_blocks = 0;
  int32_t n_free = 0;
  int32_t n_cached = 0;
  int32_t n_in_use = 0;
  int32_t n_promised = 0;
  int64_t n_evicted = 0;          // blocks, since the start
  int64_t n_hit_tokens = 0;       // found at acquire, recomputation after preemption left out
  int64_t n_partial_tokens = 0;   // of those, in blocks that match in part
  int64_t n_twins_dropped = 0;    // blocks computed twice
  std::array<int64_t, 3> n_on{};  // blocks now, by TierKind
  std::array<int64_t, 3> n_restored_tokens{};  // used by a sequence, by TierKind
  int64_t n_offloads_skipped = 0;              // blocks, for want of room or budget
  // Copies that left a tier, by TierKind and Cause.
  std::array<std::array<int64_t, kCauses.size()>, 3> n_left{};
  // Restores: decisions, and how they came out.
  int64_t n_restore_all = 0;
  int64_t n_recompute_all = 0;
  int64_t n_restore_both = 0;
  int64_t n_restores_failed = 0;  // ended by a block that did not come
  int64_t n_restores_done = 0;
  double predicted_s = 0;  // sums over those that are done
  double actual_s = 0;
};

// What a prompt would find. Lengths are in tokens, whole blocks.
struct Probe {
  int32_t cached_len = 0;
  // Longer than cached_len when a running sequence has promised to compute more of these tokens.
  int32_t promised_len = 0;
  // Blocks of cached_len that can be evicted now and could not after acquire.
  int32_t n_blocks_taken = 0;
  // Behind cached_len, in the tiers below.
  int32_t host_len = 0;
  int32_t ssd_len = 0;
};

enum class UseCache : uint8_t {
  kYes,
  kRecompute,  // as kYes, but not counted as a hit: the sequence had this KV before
  kNo,         // match nothing: every row is wanted (prompt log probabilities)
};

// The part of a lease that comes up from below: tokens [begin, end) are on their way, [landed, end)
// is there. Whoever computes from the front stops at begin; when landed is where it stands, all of
// [landed, end) is ready.
struct RestoreView {
  int32_t begin = 0;
  int32_t landed = 0;
  int32_t end = 0;
};

// A block to be copied on the device before anything else runs.
struct BlockCopy {
  BlockId from;
  BlockId to;
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
  // Where ready_len() ends inside a block: a copy of one that begins with the same tokens, which is
  // written from there on. The caller of acquire() makes these copies at once.
  std::span<const BlockCopy> copies() const;
  // What is coming up, if anything is.
  std::optional<RestoreView> pending() const;
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
  // `clock` for the times of transfers; may be null without tiers.
  explicit KvCache(KvCacheConfig config, const base::Clock* clock = nullptr);
  ~KvCache();

  // What acquire would find now; changes nothing. A hit leaves at least one token to compute.
  Probe probe(const CacheScope& scope, std::span<const int32_t> tokens, UseCache use) const;

  // Locks the longest committed prefix of `tokens` on the device and promises the rest of its whole
  // blocks. Where a block there goes on as `tokens` do for a part, and one is free, the lease gets
  // a copy of it. Never fails.
  PrefixLease acquire(const CacheScope& scope, std::span<const int32_t> tokens, UseCache use);
  // The same for somebody who will compute nothing: no promise, no hit; to pin or to bring up.
  PrefixLease hold_path(const CacheScope& scope, std::span<const int32_t> tokens);

  // Begins to bring up what lies below for the lease, as far as that beats computing it; takes the
  // blocks for it. n_rows_queued: prompt rows that others compute before it. Nothing happens where
  // there is nothing to bring up, or no room.
  void restore(PrefixLease& lease, std::span<const int32_t> tokens, int32_t n_rows_queued);
  // For a sequence that waits to run: what it would get from acquire() and restore() with its KV
  // already on the way, and no promise. Empty: nothing lies below, computing it is cheaper, or
  // there is no room. When the sequence runs, adopt() makes it what acquire() would have given.
  PrefixLease restore_early(const CacheScope& scope, std::span<const int32_t> tokens,
                            int32_t n_rows_queued);
  void adopt(PrefixLease& lease, std::span<const int32_t> tokens, UseCache use);
  // Brings up all that lies below, whatever it costs; for a lease of hold_path(). False: nothing
  // lies there, or there is no room.
  bool restore_all(PrefixLease& lease, std::span<const int32_t> tokens);
  // Before each step, with what the sequence has computed: moves the place where front and restore
  // meet if one of them is ahead.
  void rebalance(PrefixLease& lease, std::span<const int32_t> tokens, int32_t computed_len);
  // What landed was taken: pending() is over. Tokens of it by tier; hits if `use` is kYes, and not
  // before adopt() where restore_early() has made the lease.
  std::array<int32_t, 3> finish_restore(PrefixLease& lease, UseCache use);
  // Takes in what transfers have done since the last call. True when there was something.
  bool poll();
  // A step computed prompt rows; see CostModel.
  void observe_prefill(int32_t position, int32_t n_rows, int64_t us);
  const CostModel& cost() const { return cost_; }

  // Makes the lease's tables cover n_tokens positions; evicts what nobody uses if it must. False,
  // and nothing has changed, when there are not enough blocks.
  [[nodiscard]] bool try_extend(PrefixLease& lease, int32_t n_tokens);

  // The KV of tokens [0, computed_len) is written: whole blocks of it become shareable. Where the
  // tree has the same already, the tables change over to the tree's blocks.
  void commit(PrefixLease& lease, std::span<const int32_t> tokens, int32_t computed_len);

  void release(PrefixLease lease);

  // Of paths, for sessions. Tokens of whole blocks, by Source: where the path would come from now,
  // up to the first block that is nowhere.
  std::array<int32_t, 4> residency(const CacheScope& scope, std::span<const int32_t> tokens) const;
  // Copies what lies on the device to the tiers that have no copy yet.
  void copy_path_down(const CacheScope& scope, std::span<const int32_t> tokens);
  // Takes off the device what has a copy below and nobody uses, and off the host tier, where
  // `host_too`, what lies on the SSD; how many blocks.
  int32_t free_path(const CacheScope& scope, std::span<const int32_t> tokens, bool host_too);
  // Erases the path from every tier as far up as it is not shared or in use.
  void drop_path(const CacheScope& scope, std::span<const int32_t> tokens);
  // Erases all that is kept under a salt, in every tier. False: a request, a pin or a copy that is
  // under way uses some of it, which stays.
  bool drop_salt(const std::string& salt);
  // Everything that nobody uses, in every tier.
  void reset();
  // Keeps the path longer, or less long, than others: 0 … 100.
  void set_priority(const CacheScope& scope, std::span<const int32_t> tokens, uint8_t priority);
  Explanation explain(const CacheScope& scope, std::span<const int32_t> tokens);
  // The folder of the SSD is still being read: more may be found soon.
  bool is_indexing() const { return config_.tiers.ssd != nullptr && !index_done_; }

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
  bool has_host() const { return config_.tiers.host != nullptr; }
  bool has_tiers() const { return config_.tiers.transfer != nullptr; }

  KvCacheStats stats() const;
  // Dies unless free + cached + in use + promised = all, every block is held exactly by what it
  // should be, and the tree is whole. When idle, and after every step in tests.
  void check() const;

 private:
  friend class PrefixLease;
  using LeaseState = PrefixLease::State;

  // A path that is copied down stays locked until the last block of it is done.
  struct Hold {
    NodeId end;
    int32_t n_left = 0;
  };
  struct OffloadKey {
    TierKind tier = TierKind::kHost;
    BlockKey key{};
    bool operator==(const OffloadKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const OffloadKey& k) {
      return H::combine(std::move(h), k.tier, k.key);
    }
  };

  PrefixLease add_lease(std::unique_ptr<LeaseState> state);
  std::unique_ptr<LeaseState> lock_path(const CacheScope& scope, std::span<const int32_t> tokens,
                                        int32_t max_ordinals);
  void promise(LeaseState& state, std::span<const int32_t> tokens);
  void copy_partial(LeaseState& state, std::span<const int32_t> tokens);
  int32_t max_hit_ordinals(std::span<const int32_t> tokens) const;
  void allocate(std::vector<BlockId>& table);
  void release_state(LeaseState& state);
  void free_blocks(std::span<const BlockId> blocks);
  // Counts copies that have left a tier, for cause_.
  void leave(TierKind tier, size_t n_copies);
  void pin(BlockId block);
  void unpin(BlockId block);
  int32_t n_promised(const LeaseState& state) const;

  void write_before_eviction();

  // kv_cache_tiers.cc
  void copy_down(NodeId end, int32_t from_ordinal, bool is_reuse);
  void offload(NodeId end, std::vector<BlockAbove> blocks, TierKind to);
  bool make_host_room();
  void place_host_copies();
  bool take_index();  // true: there was something
  void drop_from_host(std::span<const BlockKey> keys);
  void let_go(const RadixTree::Dropped& dropped);
  void on_restored(const TransferDone& done);
  void on_offloaded(const TransferDone& done);
  void cut_restore(LeaseState& state, int32_t ordinal);
  void end_restore(LeaseState& state);
  void start_restore(LeaseState& state, std::span<const int32_t> tokens, int32_t begin,
                     int32_t end);
  int32_t restorable_end(const LeaseState& state, std::span<const int32_t> tokens,
                         int32_t max_ordinals) const;
  void begin_restore(LeaseState& state, std::span<const int32_t> tokens, int32_t end,
                     const RestoreAnswer& answer);
  bool restore_from_front(PrefixLease& lease, std::span<const int32_t> tokens, int32_t end,
                          RestoreAnswer answer);
  RestoreAnswer decide(const CacheScope& scope, std::span<const int32_t> tokens, int32_t begin,
                       int32_t end, int32_t n_rows_queued) const;

  void check_leases() const;

  const KvCacheConfig config_;
  const base::Clock* const clock_;
  BlockPool pool_;
  RadixTree tree_;
  CostModel cost_;
  std::vector<LeaseState*> leases_;  // all that live
  std::vector<BlockId> scratch_;
  std::vector<int32_t> pins_;  // [n_blocks] by transfers
  absl::flat_hash_map<TransferId, LeaseState*> restores_;
  absl::flat_hash_map<OffloadKey, std::shared_ptr<Hold>> offloads_;  // under way
  int32_t n_host_offloads_ = 0;                                      // of those
  std::vector<BlockKey> host_early_;  // copies that came before their parent's
  std::vector<BlockRecord> found_;    // by the SSD's scan, not yet in the tree
  KvCacheStats counts_;               // those that only grow
  EvictionLog gone_{1 << 15};
  Cause cause_ = Cause::kDeviceRoom;  // of what goes now
  bool index_done_ = false;
  int64_t ssd_declines_until_us_ = 0;
};

}  // namespace pagoda::cache
