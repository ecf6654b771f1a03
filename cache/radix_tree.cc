#include "cache/radix_tree.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "base/check.h"

namespace pagoda::cache {

size_t RadixTree::ChildHash::operator()(const ChildKey& key) const {
  return absl::HashOf(key.parent, absl::Span<const int32_t>(key.tokens.data(), key.tokens.size()));
}
size_t RadixTree::ChildHash::operator()(NodeId node) const {
  return (*this)(tree->child_key(node));
}
bool RadixTree::ChildEq::operator()(const ChildKey& a, NodeId b) const {
  const ChildKey key = tree->child_key(b);
  return a.parent == key.parent && std::ranges::equal(a.tokens, key.tokens);
}

RadixTree::RadixTree(int32_t block_size, int32_t n_groups, base::Digest256 identity)
    : block_size_(block_size),
      n_groups_(static_cast<size_t>(n_groups)),
      identity_(identity),
      children_(0, ChildHash{this}, ChildEq{this}) {}

RadixTree::ChildKey RadixTree::child_key(NodeId id) const {
  const Node& node = at(id);
  return {node.parent, std::span(node.tokens).first(static_cast<size_t>(block_size_))};
}

const NodeId* RadixTree::find_child(NodeId parent, std::span<const int32_t> tokens) const {
  if (tokens.size() < static_cast<size_t>(block_size_)) return nullptr;
  const auto it = children_.find(ChildKey{parent, tokens.first(static_cast<size_t>(block_size_))});
  return it == children_.end() ? nullptr : &*it;
}

int32_t RadixTree::common_ordinals(const Node& node, std::span<const int32_t> tokens) const {
  const auto [end, unused] = std::ranges::mismatch(node.tokens, tokens);
  return static_cast<int32_t>(end - node.tokens.begin()) / block_size_;
}

TreeMatch RadixTree::match(const CacheScope& scope, std::span<const int32_t> tokens,
                           int32_t max_ordinals) const {
  TreeMatch found;
  const auto root = roots_.find(std::pair(scope.salt, scope.adapter));
  if (root == roots_.end()) return found;
  tokens = tokens.first(static_cast<size_t>(max_ordinals) * static_cast<size_t>(block_size_));
  NodeId current = root->second;
  while (const NodeId* child = find_child(current, tokens)) {
    const Node& node = at(*child);
    const int32_t n = common_ordinals(node, tokens);
    found.n_matched += n;
    if (node.n_locks == 0) found.n_unlocked += n;
    if (n < n_ordinals(node)) break;
    tokens = tokens.subspan(node.tokens.size());
    current = *child;
  }
  return found;
}

NodeId RadixTree::lock(const CacheScope& scope, std::span<const int32_t> tokens,
                       int32_t max_ordinals, std::span<std::vector<BlockId>> tables) {
  CHECK_EQ(tables.size(), n_groups_);
  NodeId current = find_or_make_root(scope);
  add_lock(current);
  tokens = tokens.first(static_cast<size_t>(max_ordinals) * static_cast<size_t>(block_size_));
  while (const NodeId* child = find_child(current, tokens)) {
    NodeId next = *child;
    const int32_t n = common_ordinals(at(next), tokens);
    if (n < n_ordinals(at(next))) next = split(next, n);
    add_lock(next);
    const Node& node = at(next);
    for (size_t i = 0; i < node.blocks.size(); ++i) {
      tables[i % n_groups_].push_back(node.blocks[i]);
    }
    tokens = tokens.subspan(node.tokens.size());
    current = next;
  }
  return current;
}

void RadixTree::unlock(NodeId node) {
  for (bool more = true; more;) {
    const NodeId parent = at(node).parent;
    more = !is_root(node);
    drop_lock(node);
    node = parent;
  }
}

NodeId RadixTree::insert(NodeId end, std::span<const int32_t> tokens, int32_t first,
                         std::span<std::vector<BlockId>> tables, std::vector<BlockId>& twins) {
  CHECK_EQ(tokens.size() % static_cast<size_t>(block_size_), size_t{0});
  CHECK_GT(at(end).n_locks, 0);
  while (!tokens.empty()) {
    const NodeId* child = find_child(end, tokens);
    if (child == nullptr) {
      // A leaf that only this path holds grows; anything else gets a child.
      const bool grows = !is_root(end) && at(end).n_children == 0 && at(end).n_locks == 1;
      NodeId target = end;
      if (!grows) {
        target = new_node();
        at(target).parent = end;
        at(target).root = at(end).root;
        at(target).last_use = ++use_counter_;
        at(target).n_locks = 1;
        ++at(end).n_children;
      }
      append(target, tokens, first, tables);
      if (!grows) children_.insert(target);
      return target;
    }
    NodeId next = *child;
    const int32_t n = common_ordinals(at(next), tokens);
    if (n < n_ordinals(at(next))) next = split(next, n);
    add_lock(next);
    for (int32_t i = 0; i < n; ++i) {
      for (size_t g = 0; g < n_groups_; ++g) {
        BlockId& mine = tables[g][static_cast<size_t>(first + i)];
        twins.push_back(mine);
        mine = at(next).blocks[static_cast<size_t>(i) * n_groups_ + g];
      }
    }
    first += n;
    tokens = tokens.subspan(at(next).tokens.size());
    end = next;
  }
  return end;
}

void RadixTree::append(NodeId id, std::span<const int32_t> tokens, int32_t first,
                       std::span<const std::vector<BlockId>> tables) {
  Node& node = at(id);
  const size_t block = static_cast<size_t>(block_size_);
  const std::vector<BlockKey>& above = node.keys.empty() ? at(node.parent).keys : node.keys;
  std::vector<BlockKey> parent_keys(above.end() - static_cast<std::ptrdiff_t>(n_groups_),
                                    above.end());
  for (size_t i = 0; i < tokens.size() / block; ++i) {
    for (size_t g = 0; g < n_groups_; ++g) {
      parent_keys[g] = block_key(parent_keys[g], tokens.subspan(i * block, block));
      node.keys.push_back(parent_keys[g]);
      node.blocks.push_back(tables[g][static_cast<size_t>(first) + i]);
    }
  }
  node.tokens.insert(node.tokens.end(), tokens.begin(), tokens.end());
  n_total_ += static_cast<int32_t>(tokens.size() / block);
}

bool RadixTree::evict_one(std::vector<BlockId>& freed) {
  if (victims_.empty()) return false;
  const NodeId id = victims_.begin()->second;
  Node& node = at(id);
  const auto last = node.blocks.end() - static_cast<std::ptrdiff_t>(n_groups_);
  freed.insert(freed.end(), last, node.blocks.end());
  --n_total_;
  --n_evictable_;
  if (n_ordinals(node) > 1) {
    node.blocks.erase(last, node.blocks.end());
    node.keys.resize(node.keys.size() - n_groups_);
    node.tokens.resize(node.tokens.size() - static_cast<size_t>(block_size_));
    return true;
  }
  set_victim(id, false);
  children_.erase(children_.find(id));
  const NodeId parent = node.parent;
  --at(parent).n_children;
  free_node(id);
  if (may_be_victim(parent)) set_victim(parent, true);
  drop_empty_root(parent);
  return true;
}

int32_t RadixTree::n_held_alone(NodeId end) const {
  int32_t n = 0;
  for (NodeId id = end; !is_root(id) && at(id).n_locks == 1; id = at(id).parent) {
    n += n_ordinals(at(id));
  }
  return n;
}

void RadixTree::path_blocks(NodeId end, std::span<std::vector<BlockId>> tables) const {
  std::vector<NodeId> path;
  for (NodeId id = end; !is_root(id); id = at(id).parent) path.push_back(id);
  std::ranges::reverse(path);
  for (const NodeId id : path) {
    const std::vector<BlockId>& blocks = at(id).blocks;
    for (size_t i = 0; i < blocks.size(); ++i) tables[i % n_groups_].push_back(blocks[i]);
  }
}

const BlockKey& RadixTree::key(NodeId end, GroupId group) const {
  const std::vector<BlockKey>& keys = at(end).keys;
  return keys[keys.size() - n_groups_ + static_cast<size_t>(group.value())];
}

NodeId RadixTree::find_or_make_root(const CacheScope& scope) {
  const auto [it, is_new] = roots_.try_emplace(std::pair(scope.salt, scope.adapter));
  if (is_new) {
    const NodeId id = new_node();
    it->second = id;
    root_scopes_.emplace(id, it->first);
    at(id).parent = id;
    at(id).root = id;
    for (size_t g = 0; g < n_groups_; ++g) {
      at(id).keys.push_back(root_key(identity_, GroupId(static_cast<int16_t>(g)), scope));
    }
  }
  return it->second;
}

NodeId RadixTree::new_node() {
  NodeId id(static_cast<int32_t>(nodes_.size()));
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  at(id) = Node{};
  at(id).alive = true;
  return id;
}

void RadixTree::free_node(NodeId id) {
  at(id) = Node{};
  free_nodes_.push_back(id);
}

NodeId RadixTree::split(NodeId id, int32_t n) {
  const NodeId upper_id = new_node();  // before any reference: nodes_ may move
  Node& upper = at(upper_id);
  Node& lower = at(id);
  CHECK(n > 0 && n < n_ordinals(lower));
  children_.erase(children_.find(id));
  const auto n_tokens = static_cast<std::ptrdiff_t>(n) * block_size_;
  const auto n_blocks = static_cast<std::ptrdiff_t>(n) * static_cast<std::ptrdiff_t>(n_groups_);
  const auto move_front = [](auto& from, auto& to, std::ptrdiff_t count) {
    to.assign(from.begin(), from.begin() + count);
    from.erase(from.begin(), from.begin() + count);
  };
  move_front(lower.tokens, upper.tokens, n_tokens);
  move_front(lower.blocks, upper.blocks, n_blocks);
  move_front(lower.keys, upper.keys, n_blocks);
  upper.parent = lower.parent;
  upper.root = lower.root;
  upper.n_children = 1;
  upper.n_locks = lower.n_locks;
  upper.last_use = lower.last_use;
  // The lower part keeps its id: locks on the old node were locks on its end.
  lower.parent = upper_id;
  children_.insert(upper_id);
  children_.insert(id);
  return upper_id;
}

bool RadixTree::may_be_victim(NodeId id) const {
  const Node& node = at(id);
  return node.n_locks == 0 && node.n_children == 0 && !is_root(id);
}

void RadixTree::set_victim(NodeId id, bool is_victim) {
  if (is_victim) {
    victims_.emplace(at(id).last_use, id);
  } else {
    victims_.erase({at(id).last_use, id});
  }
}

void RadixTree::add_lock(NodeId id) {
  if (may_be_victim(id)) set_victim(id, false);
  Node& node = at(id);
  if (node.n_locks == 0) n_evictable_ -= n_ordinals(node);
  ++node.n_locks;
}

void RadixTree::drop_lock(NodeId id) {
  Node& node = at(id);
  CHECK_GT(node.n_locks, 0);
  --node.n_locks;
  if (node.n_locks > 0) return;
  n_evictable_ += n_ordinals(node);
  // A path is let go from its end upwards, so that a parent is never older than its child.
  node.last_use = ++use_counter_;
  if (may_be_victim(id)) set_victim(id, true);
  drop_empty_root(id);
}

void RadixTree::drop_empty_root(NodeId id) {
  if (!is_root(id) || at(id).n_locks > 0 || at(id).n_children > 0) return;
  const auto scope = root_scopes_.find(id);
  roots_.erase(scope->second);
  root_scopes_.erase(scope);
  free_node(id);
}

void RadixTree::visit(
    const std::function<void(NodeId, NodeId, std::span<const BlockId>, int32_t)>& fn) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.alive) fn(NodeId(static_cast<int32_t>(i)), node.parent, node.blocks, node.n_locks);
  }
}

void RadixTree::check() const {
  int32_t n_total = 0;
  int32_t n_evictable = 0;
  size_t n_victims = 0;
  std::vector<int32_t> n_children(nodes_.size(), 0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const NodeId id(static_cast<int32_t>(i));
    if (!node.alive) continue;
    if (is_root(id)) {
      CHECK_EQ(node.tokens.size(), size_t{0});
      continue;
    }
    const int32_t n = n_ordinals(node);
    CHECK_GT(n, 0);
    CHECK_EQ(node.tokens.size(), static_cast<size_t>(n) * static_cast<size_t>(block_size_));
    CHECK_EQ(node.blocks.size(), static_cast<size_t>(n) * n_groups_);
    CHECK_EQ(node.keys.size(), node.blocks.size());
    CHECK(at(node.parent).alive);
    CHECK_LE(node.n_locks, at(node.parent).n_locks);
    ++n_children[static_cast<size_t>(node.parent.value())];
    const NodeId* found = find_child(node.parent, node.tokens);
    CHECK(found != nullptr && *found == id);
    n_total += n;
    if (node.n_locks == 0) n_evictable += n;
    if (may_be_victim(id)) {
      ++n_victims;
      CHECK(victims_.contains(std::pair(node.last_use, id)));
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].alive) CHECK_EQ(n_children[i], nodes_[i].n_children);
  }
  CHECK_EQ(n_total, n_total_);
  CHECK_EQ(n_evictable, n_evictable_);
  CHECK_EQ(n_victims, victims_.size());
}

}  // namespace pagoda::cache
