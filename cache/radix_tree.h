// The tree of committed KV: each path from a root spells tokens, each node holds a run of whole
// blocks, and the blocks of a node are valid after all tokens above them.
//
//   root (one per scope)
//    ├── [t0 … t31] blocks 7 9          a node is split only at a block border
//    │     ├── [t32 … t47] block 3
//    │     └── [u32 … u63] blocks 4 5
//    └── [v0 … v15] block 8
//
// A block may lie on the device, in the host tier, on the SSD, or on several of them; a node that
// nothing lies in stays while something does below it.
//
//   node:     t0 … t15 │ t16 … t31 │ t32 … t47 │ t48 … t63
//   device        x          x                              always the first ones of a path
//   host          x          x           x                  too
//   ssd           x                      x           x      any: what has no whole path is
//   unreachable
//
// It compares tokens, not only hashes. A lock covers a node and everything above it, so what is
// locked never leaves the device. A victim of a tier has no child with a copy in that tier; a
// node's last block goes first, lower priority first, then least recently used first.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "cache/identity.h"
#include "cache/tier.h"

namespace pagoda::cache {

using NodeId = base::StrongId<struct NodeTag, int32_t>;

// Counts in this header are of ordinals: one block of every group, block_size tokens.
struct TreeMatch {
  int32_t n_matched = 0;   // on the device
  int32_t n_unlocked = 0;  // of those, in nodes that nobody holds: a lock makes them not evictable
  // Behind those, without a gap, in a tier below; the host serves what lies in both.
  int32_t n_host = 0;
  int32_t n_ssd = 0;
  int32_t n_below() const { return n_host + n_ssd; }
};

// Where a block below the device can be had.
struct BlockBelow {
  BlockKey key{};
  TierKind tier = TierKind::kSsd;
};

// A block on the device, and what a tier below is to know of it.
struct BlockAbove {
  BlockRecord record;
  BlockId block;
};

// A block of the path that begins with more of the wanted tokens than any other.
struct PartialBlock {
  std::vector<BlockId> blocks;  // [n_groups], on the device
  int32_t n_tokens = 0;         // of it that are wanted; less than block_size
};

// Engine thread only. Blocks are the caller's: the tree keeps their ids and says which to free.
class RadixTree {
 public:
  RadixTree(int32_t block_size, int32_t n_groups, base::Digest256 identity);

  // The longest run of committed blocks that `tokens` begins with, up to max_ordinals. Read only.
  TreeMatch match(const CacheScope& scope, std::span<const int32_t> tokens,
                  int32_t max_ordinals) const;
  // Where match() ends on the device, the block that goes on longest as `tokens` do.
  std::optional<PartialBlock> match_partial(const CacheScope& scope,
                                            std::span<const int32_t> tokens) const;
  // The blocks of ordinals [begin, end), which match() found below: [ordinal][n_groups]. Ends early
  // where one is gone.
  std::vector<BlockBelow> below(const CacheScope& scope, std::span<const int32_t> tokens,
                                int32_t begin, int32_t end) const;

  // Locks what match() finds on the device and appends its blocks to tables[group]. The node
  // returned is the end of the locked path (a root when nothing matched).
  NodeId lock(const CacheScope& scope, std::span<const int32_t> tokens, int32_t max_ordinals,
              std::span<std::vector<BlockId>> tables);
  void unlock(NodeId node);
  // A lock of a path down to the last block of `end` on the device, whose end may grow meanwhile.
  // Returns the node to give to unhold().
  NodeId hold(NodeId end);
  void unhold(NodeId end);

  // Continues a locked path by whole blocks: tokens [n * block_size], and tables[group][first …
  // first + n). Where the tree has the same tokens on the device already, its blocks take the place
  // of the caller's in the tables, and the caller's go to `twins`. Returns the new end, to which
  // the lock has moved.
  NodeId insert(NodeId end, std::span<const int32_t> tokens, int32_t first,
                std::span<std::vector<BlockId>> tables, std::vector<BlockId>& twins);

  // Takes the first evictable ordinal off the device; its blocks go to `freed`. False when
  // everything is locked.
  bool evict_one(std::vector<BlockId>& freed);
  // Chooses the host tier's victim and forgets its copy; [n_groups] keys for the tier to drop.
  bool evict_host(std::vector<BlockKey>& dropped);
  // Takes what evict_one may, but of one path: the last ordinal of `tokens` on the device, if
  // nobody uses it, nothing lies behind it there, and a tier below has a copy. For sessions that
  // are idle.
  bool evict_path_end(const CacheScope& scope, std::span<const int32_t> tokens,
                      std::vector<BlockId>& freed);

  // The same in the host tier, for what lies on the SSD as well.
  bool evict_host_path_end(const CacheScope& scope, std::span<const int32_t> tokens,
                           std::vector<BlockKey>& dropped);

  // A copy of the block is there now. False when the tree doesn't know the key (any more), or, in
  // the host tier, when its parent has no copy there: the tier should drop it.
  bool add_copy(TierKind tier, const BlockKey& key);
  void remove_copy(TierKind tier, const BlockKey& key, std::vector<BlockKey>& host_dropped);
  bool has_copy(TierKind tier, const BlockKey& key) const;
  // A block that the SSD tier has kept from an earlier run. One whose parent is unknown waits until
  // that comes.
  void add_found(BlockRecord record);
  bool knows(const BlockKey& key) const { return index_.contains(key); }
  // The blocks from ordinal `from` of the locked path that ends here which have no copy in `tier`,
  // parents first.
  std::vector<BlockAbove> without_copy(NodeId end, TierKind tier, int32_t from) const;

  // Called with the key of each block (of group 0) whose last copy goes.
  void on_gone(std::function<void(const BlockKey&)> fn) { on_gone_ = std::move(fn); }
  // What the tree has let go of, for the caller to free and to erase.
  struct Dropped {
    std::vector<BlockId> blocks;  // on the device
    std::vector<BlockKey> host;   // of copies there
    std::vector<BlockKey> ssd;
  };
  // Takes a path's end out of every tier, as far up as nothing else is kept behind it and nobody
  // uses it.
  void drop_path(const CacheScope& scope, std::span<const int32_t> tokens, Dropped& dropped);
  // Takes all that is kept under a salt, with any adapter, out of every tier; what somebody uses
  // stays on the device, and then the answer is false.
  bool drop_salt(const std::string& salt, Dropped& dropped);
  // Where `tokens` leave what is kept in the scope (in tokens, not only whole blocks), and up to
  // `most` tokens that are kept there instead.
  struct Parting {
    int32_t position = 0;
    std::vector<int32_t> kept;
  };
  std::optional<Parting> parting(const CacheScope& scope, std::span<const int32_t> tokens,
                                 size_t most) const;
  // The longest run of whole blocks kept, in any tier, under a scope other than this one.
  int32_t n_in_other_scopes(const CacheScope& scope, std::span<const int32_t> tokens) const;
  // Up to about `most` blocks that would leave the device next and have no copy in `tier`, by node.
  struct Victims {
    NodeId node;
    std::vector<BlockAbove> blocks;
  };
  std::vector<Victims> next_victims_without(TierKind tier, size_t most) const;

  // 0 … 100, lower goes first: of what only this path has, and at least that of what it shares.
  void set_priority(NodeId end, uint8_t priority);

  int32_t n_evictable() const { return n_evictable_; }
  int32_t n_on(TierKind tier) const { return n_on_[static_cast<size_t>(tier)]; }
  size_t n_waiting_for_parents() const { return n_orphans_; }
  // How many ordinals unlock(end) would make evictable.
  int32_t n_held_alone(NodeId end) const;
  // The blocks of the path from the root to here, appended to tables[group].
  void path_blocks(NodeId end, std::span<std::vector<BlockId>> tables) const;
  // Of the last block of a group on the path that ends here; the root key on a root.
  const BlockKey& key(NodeId end, GroupId group) const;

  // Every node once, for checks: its blocks on the device and how often it is locked.
  void visit(const std::function<void(NodeId node, NodeId parent, std::span<const BlockId> blocks,
                                      int32_t n_locks)>& fn) const;
  // Dies on a broken invariant.
  void check() const;

 private:
  // The tiers in which the copies of a path are always its first blocks.
  static constexpr size_t kDevice = static_cast<size_t>(TierKind::kDevice);
  static constexpr size_t kHost = static_cast<size_t>(TierKind::kHost);
  static constexpr size_t kPrefixTiers = 2;

  using VictimKey = std::tuple<uint8_t, uint64_t, NodeId>;  // priority, last use

  struct Node {
    bool alive = false;
    uint8_t priority = 50;
    std::array<bool, kPrefixTiers> is_victim{};
    NodeId parent;
    NodeId root;
    int32_t begin = 0;            // ordinals above it; -1 on a root
    std::vector<int32_t> tokens;  // [n * block_size]
    std::vector<BlockKey> keys;   // [n][n_groups]; on a root [1][n_groups]
    std::vector<uint8_t> copies;  // [n][n_groups], a bit for host and for ssd
    std::vector<BlockId> blocks;  // [n_on[device]][n_groups]
    std::array<int32_t, kPrefixTiers> n_on{};
    std::array<int32_t, kPrefixTiers> n_children_on{};  // children with a copy there
    int32_t n_on_ssd = 0;
    int32_t n_children = 0;
    int32_t n_locks = 0;  // of this node and of those below
    int32_t n_holds = 0;  // of its locks, those that ask for no more than they did
    uint64_t last_use = 0;
  };
  // Children by their parent and the tokens of their first block, in the order of those: the
  // neighbours of a place begin most like it.
  struct ChildKey {
    NodeId parent;
    std::span<const int32_t> tokens;
  };
  struct ChildLess {
    using is_transparent = void;
    const RadixTree* tree;
    bool operator()(const ChildKey& a, const ChildKey& b) const;
    bool operator()(NodeId a, NodeId b) const;
    bool operator()(NodeId a, const ChildKey& b) const;
    bool operator()(const ChildKey& a, NodeId b) const;
  };
  // A block: its node, and its place among all blocks of the path.
  struct Place {
    NodeId node;
    int32_t index = 0;
    bool operator==(const Place&) const = default;
  };
  struct KeyHash {
    using is_transparent = void;
    const RadixTree* tree;
    size_t operator()(const BlockKey& key) const;
    size_t operator()(const Place& place) const { return (*this)(tree->key_at(place)); }
  };
  struct KeyEq {
    using is_transparent = void;
    const RadixTree* tree;
    bool operator()(const BlockKey& a, const Place& b) const { return a == tree->key_at(b); }
    bool operator()(const Place& a, const BlockKey& b) const { return (*this)(b, a); }
    bool operator()(const Place& a, const Place& b) const { return a == b; }
  };

  Node& at(NodeId id) { return nodes_[static_cast<size_t>(id.value())]; }
  const Node& at(NodeId id) const { return nodes_[static_cast<size_t>(id.value())]; }
  bool is_root(NodeId id) const { return at(id).root == id; }
  int32_t n_ordinals(const Node& node) const {
    return static_cast<int32_t>(node.tokens.size()) / block_size_;
  }
  size_t at_in_node(const Place& place) const {
    return static_cast<size_t>(place.index) - static_cast<size_t>(at(place.node).begin) * n_groups_;
  }
  const BlockKey& key_at(const Place& place) const {
    return at(place.node).keys[at_in_node(place)];
  }
  ChildKey child_key(NodeId id) const;
  std::span<const int32_t> block_tokens(const Node& node, int32_t ordinal) const;
  // The child whose first block is `tokens`, or none.
  const NodeId* find_child(NodeId parent, std::span<const int32_t> tokens) const;
  // How many whole blocks of the node's own tokens `tokens` begins with.
  int32_t common_ordinals(const Node& node, std::span<const int32_t> tokens) const;
  NodeId find_or_make_root(const CacheScope& scope);
  NodeId new_node();
  NodeId new_child(NodeId parent);
  void free_node(NodeId id);
  // Cuts a node after its first n ordinals; returns the new upper part.
  NodeId split(NodeId id, int32_t n);
  // Ordinals at the node's end, with keys and without copies.
  void append(NodeId id, std::span<const int32_t> tokens);
  void append_known(NodeId id, std::span<const int32_t> tokens, std::span<const BlockKey> keys);
  // The ordinals [from, to) of the node get the caller's blocks on the device.
  void adopt(NodeId id, int32_t from, int32_t to, std::span<const std::vector<BlockId>> tables,
             int32_t first);
  void pop_ordinal(NodeId id);
  // Takes off what lies nowhere and nobody needs, from the node's end and upwards.
  void trim(NodeId id);
  // Of one node; in the host tier nothing may lie behind it any more.
  void drop_copies(NodeId id, Dropped& dropped);
  void drop_blocks(NodeId id, Dropped& dropped);
  // The node and all below it, parents first.
  std::vector<NodeId> subtree(NodeId id) const;
  void index_blocks(NodeId id, int32_t from);
  void unindex_blocks(NodeId id, int32_t from, int32_t to);
  void attach(const BlockKey& parent, BlockRecord record);
  void adopt_orphans(const BlockKey& parent);
  void forget_orphan(const BlockKey& key);

  void set_n_on(NodeId id, size_t tier, int32_t n);
  bool has_all_groups(const Node& node, int32_t ordinal, TierKind tier) const;
  bool parent_is_on_host(NodeId id, int32_t ordinal) const;
  // The host copies of the ordinal and of all behind it.
  void drop_host_from(NodeId id, int32_t ordinal, std::vector<BlockKey>& dropped);
  void clear_host(NodeId id, int32_t ordinal, std::vector<BlockKey>& dropped);
  void take_last(NodeId id, std::vector<BlockId>& freed);
  // Goes down as far as `tokens` and the tree agree: fn(node, whole blocks of it that agree).
  template <typename Fn>
  void walk(NodeId root, std::span<const int32_t> tokens, Fn fn) const;
  const NodeId* find_root(const CacheScope& scope) const;
  std::optional<NodeId> path_end_on(const CacheScope& scope, std::span<const int32_t> tokens,
                                    size_t tier) const;
  std::vector<NodeId> path_to(NodeId end) const;  // without the root
  BlockRecord record_at(NodeId id, int32_t ordinal, size_t group) const;

  void add_lock(NodeId id);
  void drop_lock(NodeId id);
  bool may_be_victim(NodeId id, size_t tier) const;
  void update_victims(NodeId id);
  void leave_victims(NodeId id);
  VictimKey victim_key(NodeId id) const { return {at(id).priority, at(id).last_use, id}; }
  // A scope that nobody uses and that holds nothing must not stay: clients choose salts freely.
  void drop_empty_root(NodeId id);

  const int32_t block_size_;
  const size_t n_groups_;
  const base::Digest256 identity_;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  using ScopeKey = std::pair<std::string, std::string>;  // salt, adapter
  absl::flat_hash_map<ScopeKey, NodeId> roots_;
  absl::flat_hash_map<NodeId, ScopeKey> root_scopes_;
  absl::btree_set<NodeId, ChildLess> children_;
  absl::flat_hash_set<Place, KeyHash, KeyEq> index_;                 // roots too
  absl::flat_hash_map<BlockKey, std::vector<BlockRecord>> orphans_;  // by the key of their parent
  size_t n_orphans_ = 0;
  bool adopting_ = false;
  std::vector<BlockKey> adopt_queue_;  // parents that came to be while others were adopted
  std::array<std::set<VictimKey>, kPrefixTiers> victims_;
  std::function<void(const BlockKey&)> on_gone_;
  uint64_t use_counter_ = 0;
  int32_t n_evictable_ = 0;
  std::array<int32_t, 3> n_on_{};
};

template <typename Fn>
void RadixTree::walk(NodeId root, std::span<const int32_t> tokens, Fn fn) const {
  NodeId current = root;
  while (const NodeId* child = find_child(current, tokens)) {
    const Node& node = at(*child);
    const int32_t n = common_ordinals(node, tokens);
    fn(*child, n);
    if (n < n_ordinals(node)) return;
    tokens = tokens.subspan(node.tokens.size());
    current = *child;
  }
}

}  // namespace pagoda::cache
