// The tree of committed KV: each path from a root spells tokens, each node holds a run of whole
// blocks, and the blocks of a node are valid after all tokens above them.
//
//   root (one per scope)
//    ├── [t0 … t31] blocks 7 9          a node is split only at a block border
//    │     ├── [t32 … t47] block 3
//    │     └── [u32 … u63] blocks 4 5
//    └── [v0 … v15] block 8
//
// It compares tokens, not only hashes. A lock covers a node and everything above it, so what is
// locked is never evicted; victims are leaves, their last block first, least recently used first.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/ids.h"
#include "cache/identity.h"

namespace pagoda::cache {

using NodeId = base::StrongId<struct NodeTag, int32_t>;

// Counts in this header are of ordinals: one block of every group, block_size tokens.
struct TreeMatch {
  int32_t n_matched = 0;
  int32_t n_unlocked = 0;  // of those, in nodes that nobody holds: a lock makes them not evictable
};

// Engine thread only. Blocks are the caller's: the tree keeps their ids and says which to free.
class RadixTree {
 public:
  RadixTree(int32_t block_size, int32_t n_groups, base::Digest256 identity);

  // The longest run of committed blocks that `tokens` begins with, up to max_ordinals. Read only.
  TreeMatch match(const CacheScope& scope, std::span<const int32_t> tokens,
                  int32_t max_ordinals) const;

  // Locks what match() finds and appends its blocks to tables[group]. The node returned is the end
  // of the locked path (a root when nothing matched).
  NodeId lock(const CacheScope& scope, std::span<const int32_t> tokens, int32_t max_ordinals,
              std::span<std::vector<BlockId>> tables);
  void unlock(NodeId node);

  // Continues a locked path by whole blocks: tokens [n * block_size], and tables[group][first …
  // first + n). Where the tree has the same tokens already, its blocks take the place of the
  // caller's in the tables, and the caller's go to `twins`. Returns the new end, to which the lock
  // has moved.
  NodeId insert(NodeId end, std::span<const int32_t> tokens, int32_t first,
                std::span<std::vector<BlockId>> tables, std::vector<BlockId>& twins);

  // Takes the least recently used evictable ordinal out; its blocks go to `freed`. False when
  // everything is locked.
  bool evict_one(std::vector<BlockId>& freed);

  int32_t n_evictable() const { return n_evictable_; }
  int32_t n_total() const { return n_total_; }
  // How many ordinals unlock(end) would make evictable.
  int32_t n_held_alone(NodeId end) const;
  // The blocks of the path from the root to here, appended to tables[group].
  void path_blocks(NodeId end, std::span<std::vector<BlockId>> tables) const;
  // Of the last block of a group on the path that ends here; the root key on a root.
  const BlockKey& key(NodeId end, GroupId group) const;

  // Every node once, for checks: its blocks and how often it is locked.
  void visit(const std::function<void(NodeId node, NodeId parent, std::span<const BlockId> blocks,
                                      int32_t n_locks)>& fn) const;
  // Dies on a broken invariant.
  void check() const;

 private:
  struct Node {
    bool alive = false;
    NodeId parent;
    NodeId root;
    std::vector<int32_t> tokens;  // [n * block_size]
    std::vector<BlockId> blocks;  // [n][n_groups]
    std::vector<BlockKey> keys;   // [n][n_groups]; on a root [1][n_groups]
    int32_t n_children = 0;
    int32_t n_locks = 0;  // of this node and of those below
    uint64_t last_use = 0;
  };
  // A child is found by its parent and the tokens of its first block.
  struct ChildKey {
    NodeId parent;
    std::span<const int32_t> tokens;  // [block_size]
  };
  struct ChildHash {
    using is_transparent = void;
    const RadixTree* tree;
    size_t operator()(const ChildKey& key) const;
    size_t operator()(NodeId node) const;
  };
  struct ChildEq {
    using is_transparent = void;
    const RadixTree* tree;
    bool operator()(const ChildKey& a, NodeId b) const;
    bool operator()(NodeId a, const ChildKey& b) const { return (*this)(b, a); }
    bool operator()(NodeId a, NodeId b) const { return a == b; }
  };

  Node& at(NodeId id) { return nodes_[static_cast<size_t>(id.value())]; }
  const Node& at(NodeId id) const { return nodes_[static_cast<size_t>(id.value())]; }
  bool is_root(NodeId id) const { return at(id).root == id; }
  int32_t n_ordinals(const Node& node) const {
    return static_cast<int32_t>(node.tokens.size()) / block_size_;
  }
  ChildKey child_key(NodeId id) const;
  // The child whose first block is `tokens`, or none.
  const NodeId* find_child(NodeId parent, std::span<const int32_t> tokens) const;
  // How many whole blocks of the node's own tokens `tokens` begins with.
  int32_t common_ordinals(const Node& node, std::span<const int32_t> tokens) const;
  NodeId find_or_make_root(const CacheScope& scope);
  NodeId new_node();
  void free_node(NodeId id);
  // Cuts a node after its first n ordinals; returns the new upper part.
  NodeId split(NodeId id, int32_t n);
  void append(NodeId id, std::span<const int32_t> tokens, int32_t first,
              std::span<const std::vector<BlockId>> tables);
  void add_lock(NodeId id);
  void drop_lock(NodeId id);
  void set_victim(NodeId id, bool is_victim);
  bool may_be_victim(NodeId id) const;
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
  absl::flat_hash_set<NodeId, ChildHash, ChildEq> children_;
  std::set<std::pair<uint64_t, NodeId>> victims_;  // unlocked leaves by last use
  uint64_t use_counter_ = 0;
  int32_t n_evictable_ = 0;
  int32_t n_total_ = 0;
};

}  // namespace pagoda::cache
