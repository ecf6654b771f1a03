#include "cache/radix_tree.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pagoda::cache {

bool RadixTree::ChildLess::operator()(const ChildKey& a, const ChildKey& b) const {
  if (a.parent != b.parent) return a.parent < b.parent;
  return std::ranges::lexicographical_compare(a.tokens, b.tokens);
}
bool RadixTree::ChildLess::operator()(NodeId a, NodeId b) const {
  return (*this)(tree->child_key(a), tree->child_key(b));
}
bool RadixTree::ChildLess::operator()(NodeId a, const ChildKey& b) const {
  return (*this)(tree->child_key(a), b);
}
bool RadixTree::ChildLess::operator()(const ChildKey& a, NodeId b) const {
  return (*this)(a, tree->child_key(b));
}

size_t RadixTree::KeyHash::operator()(const BlockKey& key) const {
  size_t hash = 0;  // a SHA-256 needs no more mixing
  std::memcpy(&hash, key.data(), sizeof hash);
  return hash;
}

RadixTree::RadixTree(int32_t block_size, int32_t n_groups, base::Digest256 identity)
    : block_size_(block_size),
      n_groups_(static_cast<size_t>(n_groups)),
      identity_(identity),
      children_(ChildLess{this}),
      index_(0, KeyHash{this}, KeyEq{this}) {}

std::span<const int32_t> RadixTree::block_tokens(const Node& node, int32_t ordinal) const {
  const auto size = static_cast<size_t>(block_size_);
  return std::span(node.tokens).subspan(static_cast<size_t>(ordinal) * size, size);
}

RadixTree::ChildKey RadixTree::child_key(NodeId id) const {
  return {at(id).parent, block_tokens(at(id), 0)};
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

const NodeId* RadixTree::find_root(const CacheScope& scope) const {
  const auto root = roots_.find(std::pair(scope.salt, scope.adapter));
  return root == roots_.end() ? nullptr : &root->second;
}

TreeMatch RadixTree::match(const CacheScope& scope, std::span<const int32_t> tokens,
                           int32_t max_ordinals) const {
  TreeMatch found;
  const NodeId* root = find_root(scope);
  if (root == nullptr) return found;
  bool on_device = true;
  bool reachable = true;
  tokens = tokens.first(static_cast<size_t>(max_ordinals) * static_cast<size_t>(block_size_));
  walk(*root, tokens, [&](NodeId id, int32_t n) {
    const Node& node = at(id);
    const int32_t n_device = on_device ? std::min(n, node.n_on[kDevice]) : 0;
    found.n_matched += n_device;
    if (node.n_locks == 0) found.n_unlocked += n_device;
    if (n_device < n) on_device = false;
    for (int32_t i = n_device; i < n && reachable; ++i) {
      if (i < node.n_on[kHost]) {
        ++found.n_host;
      } else if (has_all_groups(node, i, TierKind::kSsd)) {
        ++found.n_ssd;
      } else {
        reachable = false;
      }
    }
  });
  return found;
}

std::vector<BlockBelow> RadixTree::below(const CacheScope& scope, std::span<const int32_t> tokens,
                                         int32_t begin, int32_t end) const {
  std::vector<BlockBelow> found;
  const NodeId* root = find_root(scope);
  if (root == nullptr) return found;
  bool reachable = true;
  tokens = tokens.first(static_cast<size_t>(end) * static_cast<size_t>(block_size_));
  walk(*root, tokens, [&](NodeId id, int32_t n) {
    const Node& node = at(id);
    for (int32_t i = std::max(0, begin - node.begin); i < n && reachable; ++i) {
      const bool on_host = i < node.n_on[kHost];
      reachable = on_host || has_all_groups(node, i, TierKind::kSsd);
      for (size_t g = 0; g < n_groups_ && reachable; ++g) {
        found.push_back({node.keys[static_cast<size_t>(i) * n_groups_ + g],
                         on_host ? TierKind::kHost : TierKind::kSsd});
      }
    }
  });
  return found;
}

std::optional<PartialBlock> RadixTree::match_partial(const CacheScope& scope,
                                                     std::span<const int32_t> tokens) const {
  const NodeId* root = find_root(scope);
  if (root == nullptr) return std::nullopt;
  NodeId end = *root;
  int32_t n_in_end = 0;
  walk(*root, tokens, [&](NodeId id, int32_t n) {
    // A node that begins below the device ends the way; so does one that leaves it midway.
    if (is_root(end) || n_in_end == n_ordinals(at(end))) {
      if (at(id).n_on[kDevice] == 0) return;
      end = id;
      n_in_end = std::min(n, at(id).n_on[kDevice]);
    }
  });
  const int32_t n_above = is_root(end) ? 0 : at(end).begin + n_in_end;
  tokens = tokens.subspan(static_cast<size_t>(n_above) * static_cast<size_t>(block_size_));
  PartialBlock best;
  const auto offer = [&](NodeId id, int32_t ordinal) {
    const Node& node = at(id);
    if (ordinal >= node.n_on[kDevice]) return;
    const std::span<const int32_t> block = block_tokens(node, ordinal);
    const auto [differs, unused] = std::ranges::mismatch(block, tokens);
    const auto n = static_cast<int32_t>(differs - block.begin());
    if (n <= best.n_tokens) return;
    best.n_tokens = n;
    const auto first = node.blocks.begin() + static_cast<std::ptrdiff_t>(ordinal) *
                                                 static_cast<std::ptrdiff_t>(n_groups_);
    best.blocks.assign(first, first + static_cast<std::ptrdiff_t>(n_groups_));
  };
  if (!is_root(end) && n_in_end < n_ordinals(at(end))) {
    offer(end, n_in_end);
  } else {
    // Children that begin alike stand next to where `tokens` would; a few may not be on the device.
    constexpr int kLooked = 4;
    const auto place = children_.lower_bound(ChildKey{end, tokens});
    auto it = place;
    for (int i = 0; i < kLooked && it != children_.end() && at(*it).parent == end; ++i) {
      offer(*it++, 0);
    }
    it = place;
    for (int i = 0; i < kLooked && it != children_.begin(); ++i) {
      if (at(*--it).parent != end) break;
      offer(*it, 0);
    }
  }
  if (best.n_tokens == 0) return std::nullopt;
  return best;
}

NodeId RadixTree::lock(const CacheScope& scope, std::span<const int32_t> tokens,
                       int32_t max_ordinals, std::span<std::vector<BlockId>> tables) {
  CHECK_EQ(tables.size(), n_groups_);
  NodeId current = find_or_make_root(scope);
  add_lock(current);
  tokens = tokens.first(static_cast<size_t>(max_ordinals) * static_cast<size_t>(block_size_));
  while (const NodeId* child = find_child(current, tokens)) {
    NodeId next = *child;
    const int32_t n = std::min(common_ordinals(at(next), tokens), at(next).n_on[kDevice]);
    if (n == 0) break;
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

NodeId RadixTree::hold(NodeId end) {
  const int32_t n_device = at(end).n_on[kDevice];
  if (!is_root(end) && n_device < n_ordinals(at(end))) end = split(end, n_device);
  ++at(end).n_holds;
  for (NodeId id = end;; id = at(id).parent) {
    add_lock(id);
    if (is_root(id)) return end;
  }
}

void RadixTree::unhold(NodeId end) {
  CHECK_GT(at(end).n_holds, 0);
  --at(end).n_holds;
  unlock(end);
}

NodeId RadixTree::insert(NodeId end, std::span<const int32_t> tokens, int32_t first,
                         std::span<std::vector<BlockId>> tables, std::vector<BlockId>& twins) {
  CHECK_EQ(tokens.size() % static_cast<size_t>(block_size_), size_t{0});
  CHECK_GT(at(end).n_locks, 0);
  while (!tokens.empty()) {
    const NodeId* child = find_child(end, tokens);
    if (child == nullptr) {
      // A leaf that only this path holds grows; anything else gets a child.
      const bool grows =
          !is_root(end) && at(end).n_children == 0 && at(end).n_locks == 1 + at(end).n_holds;
      const NodeId target = grows ? end : new_child(end);
      const int32_t from = n_ordinals(at(target));
      append(target, tokens);
      if (!grows) {
        at(target).n_locks = 1;
        at(target).last_use = ++use_counter_;
      }
      adopt(target, from, n_ordinals(at(target)), tables, first);
      if (!orphans_.empty()) {
        const std::vector<BlockKey> keys(
            at(target).keys.begin() + from * static_cast<std::ptrdiff_t>(n_groups_),
            at(target).keys.end());
        for (const BlockKey& key : keys) adopt_orphans(key);
      }
      return target;
    }
    NodeId next = *child;
    const int32_t n = common_ordinals(at(next), tokens);
    if (n < n_ordinals(at(next))) next = split(next, n);
    add_lock(next);
    const int32_t n_there = at(next).n_on[kDevice];
    for (int32_t i = 0; i < n_there; ++i) {
      for (size_t g = 0; g < n_groups_; ++g) {
        BlockId& mine = tables[g][static_cast<size_t>(first + i)];
        twins.push_back(mine);
        mine = at(next).blocks[static_cast<size_t>(i) * n_groups_ + g];
      }
    }
    if (n_there < n) adopt(next, n_there, n, tables, first + n_there);
    first += n;
    tokens = tokens.subspan(at(next).tokens.size());
    end = next;
  }
  return end;
}

void RadixTree::adopt(NodeId id, int32_t from, int32_t to,
                      std::span<const std::vector<BlockId>> tables, int32_t first) {
  CHECK_EQ(at(id).n_on[kDevice], from);
  for (int32_t i = 0; i < to - from; ++i) {
    for (size_t g = 0; g < n_groups_; ++g) {
      at(id).blocks.push_back(tables[g][static_cast<size_t>(first + i)]);
    }
  }
  set_n_on(id, kDevice, to);
}

void RadixTree::take_last(NodeId id, std::vector<BlockId>& freed) {
  Node& node = at(id);
  const auto last = node.blocks.end() - static_cast<std::ptrdiff_t>(n_groups_);
  freed.insert(freed.end(), last, node.blocks.end());
  node.blocks.erase(last, node.blocks.end());
  set_n_on(id, kDevice, node.n_on[kDevice] - 1);
  trim(id);
}

bool RadixTree::evict_one(std::vector<BlockId>& freed) {
  if (victims_[kDevice].empty()) return false;
  take_last(std::get<NodeId>(*victims_[kDevice].begin()), freed);
  return true;
}

// The last node of the path with a copy in the tier, if that copy's last block is a victim there
// and of these tokens: others may use it, or go on from it.
std::optional<NodeId> RadixTree::path_end_on(const CacheScope& scope,
                                             std::span<const int32_t> tokens, size_t tier) const {
  const NodeId* root = find_root(scope);
  if (root == nullptr) return std::nullopt;
  NodeId last = *root;
  int32_t n_of_last = 0;
  walk(*root, tokens, [&](NodeId id, int32_t n) {
    if (at(id).n_on[tier] == 0) return;
    last = id;
    n_of_last = n;
  });
  if (is_root(last) || !may_be_victim(last, tier) || at(last).n_on[tier] > n_of_last) {
    return std::nullopt;
  }
  return last;
}

bool RadixTree::evict_host_path_end(const CacheScope& scope, std::span<const int32_t> tokens,
                                    std::vector<BlockKey>& dropped) {
  const std::optional<NodeId> id = path_end_on(scope, tokens, kHost);
  if (!id) return false;
  const int32_t ordinal = at(*id).n_on[kHost] - 1;
  if (!has_all_groups(at(*id), ordinal, TierKind::kSsd)) return false;
  clear_host(*id, ordinal, dropped);
  set_n_on(*id, kHost, ordinal);
  trim(*id);
  return true;
}

bool RadixTree::evict_path_end(const CacheScope& scope, std::span<const int32_t> tokens,
                               std::vector<BlockId>& freed) {
  const std::optional<NodeId> end = path_end_on(scope, tokens, kDevice);
  if (!end) return false;
  const NodeId last = *end;
  const int32_t ordinal = at(last).n_on[kDevice] - 1;
  if (ordinal >= at(last).n_on[kHost] && !has_all_groups(at(last), ordinal, TierKind::kSsd)) {
    return false;
  }
  take_last(last, freed);
  return true;
}

int32_t RadixTree::n_held_alone(NodeId end) const {
  int32_t n = 0;
  for (NodeId id = end; !is_root(id) && at(id).n_locks == 1; id = at(id).parent) {
    n += at(id).n_on[kDevice];
  }
  return n;
}

std::vector<NodeId> RadixTree::path_to(NodeId end) const {
  std::vector<NodeId> path;
  for (NodeId id = end; !is_root(id); id = at(id).parent) path.push_back(id);
  std::ranges::reverse(path);
  return path;
}

void RadixTree::path_blocks(NodeId end, std::span<std::vector<BlockId>> tables) const {
  for (const NodeId id : path_to(end)) {
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
  if (!is_new) return it->second;
  const NodeId id = new_node();
  it->second = id;
  root_scopes_.emplace(id, it->first);
  Node& root = at(id);
  root.parent = root.root = id;
  root.begin = -1;
  for (size_t g = 0; g < n_groups_; ++g) {
    root.keys.push_back(root_key(identity_, GroupId(static_cast<int16_t>(g)), scope));
  }
  index_blocks(id, 0);
  const std::vector<BlockKey> keys = root.keys;
  for (const BlockKey& key : keys) adopt_orphans(key);
  return id;
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

NodeId RadixTree::new_child(NodeId parent) {
  const NodeId id = new_node();
  Node& node = at(id);
  node.parent = parent;
  node.root = at(parent).root;
  node.begin = is_root(parent) ? 0 : at(parent).begin + n_ordinals(at(parent));
  node.priority = at(parent).priority;
  ++at(parent).n_children;
  return id;
}

void RadixTree::free_node(NodeId id) {
  at(id) = Node{};
  free_nodes_.push_back(id);
}

void RadixTree::index_blocks(NodeId id, int32_t from) {
  const auto n_keys = static_cast<int32_t>(at(id).keys.size());
  const int32_t base = at(id).begin * static_cast<int32_t>(n_groups_);
  for (int32_t i = from * static_cast<int32_t>(n_groups_); i < n_keys; ++i) {
    index_.insert(Place{id, base + i});
  }
}

void RadixTree::unindex_blocks(NodeId id, int32_t from, int32_t to) {
  const auto groups = static_cast<int32_t>(n_groups_);
  for (int32_t i = from * groups; i < to * groups; ++i) {
    index_.erase(Place{id, at(id).begin * groups + i});
  }
}

void RadixTree::append(NodeId id, std::span<const int32_t> tokens) {
  const Node& node = at(id);
  const auto block = static_cast<size_t>(block_size_);
  const std::vector<BlockKey>& above = node.keys.empty() ? at(node.parent).keys : node.keys;
  std::vector<BlockKey> last(above.end() - static_cast<std::ptrdiff_t>(n_groups_), above.end());
  std::vector<BlockKey> keys;
  for (size_t i = 0; i < tokens.size() / block; ++i) {
    for (BlockKey& key : last) {
      key = block_key(key, tokens.subspan(i * block, block));
      keys.push_back(key);
    }
  }
  append_known(id, tokens, keys);
}

void RadixTree::append_known(NodeId id, std::span<const int32_t> tokens,
                             std::span<const BlockKey> keys) {
  Node& node = at(id);
  const int32_t from = n_ordinals(node);
  node.tokens.insert(node.tokens.end(), tokens.begin(), tokens.end());
  node.keys.insert(node.keys.end(), keys.begin(), keys.end());
  node.copies.resize(node.keys.size());
  index_blocks(id, from);
  if (from == 0) children_.insert(id);
}

NodeId RadixTree::split(NodeId id, int32_t n) {
  const NodeId upper_id = new_node();  // before any reference: nodes_ may move
  Node& upper = at(upper_id);
  Node& lower = at(id);
  CHECK(n > 0 && n < n_ordinals(lower));
  leave_victims(id);
  children_.erase(children_.find(id));
  unindex_blocks(id, 0, n);
  const auto move_front = [](auto& from, auto& to, std::ptrdiff_t count) {
    count = std::min(count, std::ssize(from));
    to.assign(from.begin(), from.begin() + count);
    from.erase(from.begin(), from.begin() + count);
  };
  const auto n_blocks = static_cast<std::ptrdiff_t>(n) * static_cast<std::ptrdiff_t>(n_groups_);
  upper.n_on_ssd = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (has_all_groups(lower, i, TierKind::kSsd)) ++upper.n_on_ssd;
  }
  lower.n_on_ssd -= upper.n_on_ssd;
  move_front(lower.tokens, upper.tokens, static_cast<std::ptrdiff_t>(n) * block_size_);
  move_front(lower.keys, upper.keys, n_blocks);
  move_front(lower.copies, upper.copies, n_blocks);
  move_front(lower.blocks, upper.blocks, n_blocks);
  upper.parent = lower.parent;
  upper.root = lower.root;
  upper.begin = lower.begin;
  upper.priority = lower.priority;
  upper.n_children = 1;
  upper.n_locks = lower.n_locks;
  upper.last_use = lower.last_use;
  for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
    upper.n_on[tier] = std::min(lower.n_on[tier], n);
    lower.n_on[tier] -= upper.n_on[tier];
    upper.n_children_on[tier] = lower.n_on[tier] > 0 ? 1 : 0;
  }
  // The lower part keeps its id: locks on the old node were locks on its end.
  lower.parent = upper_id;
  lower.begin += n;
  index_blocks(upper_id, 0);
  children_.insert(upper_id);
  children_.insert(id);
  update_victims(upper_id);
  update_victims(id);
  return upper_id;
}

void RadixTree::pop_ordinal(NodeId id) {
  Node& node = at(id);
  const int32_t n = n_ordinals(node);
  if (on_gone_) on_gone_(node.keys[node.keys.size() - n_groups_]);
  unindex_blocks(id, n - 1, n);
  if (n == 1) {
    leave_victims(id);
    children_.erase(children_.find(id));
  }
  node.tokens.resize(node.tokens.size() - static_cast<size_t>(block_size_));
  node.keys.resize(node.keys.size() - n_groups_);
  node.copies.resize(node.keys.size());
}

void RadixTree::trim(NodeId id) {
  while (!is_root(id)) {
    Node& node = at(id);
    const int32_t n = n_ordinals(node);
    if (n > 0) {
      if (node.n_children > 0 || node.n_on[kDevice] == n) return;
      const auto last = node.copies.end() - static_cast<std::ptrdiff_t>(n_groups_);
      if (std::any_of(last, node.copies.end(), [](uint8_t bits) { return bits != 0; })) return;
      pop_ordinal(id);
      continue;
    }
    const NodeId parent = node.parent;
    --at(parent).n_children;
    free_node(id);
    id = parent;
  }
  drop_empty_root(id);
}

void RadixTree::set_n_on(NodeId id, size_t tier, int32_t n) {
  Node& node = at(id);
  const int32_t old = std::exchange(node.n_on[tier], n);
  n_on_[tier] += n - old;
  if (tier == kDevice && node.n_locks == 0) n_evictable_ += n - old;
  if ((old > 0) != (n > 0)) {
    at(node.parent).n_children_on[tier] += n > 0 ? 1 : -1;
    update_victims(node.parent);
  }
  update_victims(id);
}

bool RadixTree::may_be_victim(NodeId id, size_t tier) const {
  const Node& node = at(id);
  return node.n_on[tier] > 0 && node.n_children_on[tier] == 0 &&
         (tier != kDevice || node.n_locks == 0);
}

void RadixTree::update_victims(NodeId id) {
  for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
    const bool wanted = may_be_victim(id, tier);
    if (wanted == at(id).is_victim[tier]) continue;
    at(id).is_victim[tier] = wanted;
    if (wanted) {
      victims_[tier].insert(victim_key(id));
    } else {
      victims_[tier].erase(victim_key(id));
    }
  }
}

void RadixTree::leave_victims(NodeId id) {
  for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
    if (std::exchange(at(id).is_victim[tier], false)) victims_[tier].erase(victim_key(id));
  }
}

void RadixTree::set_priority(NodeId end, uint8_t priority) {
  bool is_shared = false;
  for (NodeId id = end; !is_root(id); id = at(id).parent) {
    is_shared |= at(id).n_children > (id == end ? 0 : 1);
    if (at(id).priority == priority || (is_shared && at(id).priority > priority)) continue;
    leave_victims(id);
    at(id).priority = priority;
    update_victims(id);
  }
}

void RadixTree::add_lock(NodeId id) {
  Node& node = at(id);
  if (node.n_locks == 0) n_evictable_ -= node.n_on[kDevice];
  ++node.n_locks;
  update_victims(id);
}

void RadixTree::drop_lock(NodeId id) {
  Node& node = at(id);
  CHECK_GT(node.n_locks, 0);
  --node.n_locks;
  if (node.n_locks > 0) return;
  n_evictable_ += node.n_on[kDevice];
  // A path is let go from its end upwards, so that a parent is never older than its child.
  leave_victims(id);
  node.last_use = ++use_counter_;
  update_victims(id);
  drop_empty_root(id);
}

void RadixTree::drop_empty_root(NodeId id) {
  if (!is_root(id) || at(id).n_locks > 0 || at(id).n_children > 0) return;
  const auto scope = root_scopes_.find(id);
  roots_.erase(scope->second);
  root_scopes_.erase(scope);
  for (size_t g = 0; g < n_groups_; ++g) {
    index_.erase(Place{id, static_cast<int32_t>(g) - static_cast<int32_t>(n_groups_)});
  }
  free_node(id);
}

void RadixTree::visit(
    const std::function<void(NodeId, NodeId, std::span<const BlockId>, int32_t)>& fn) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.alive) fn(NodeId(static_cast<int32_t>(i)), node.parent, node.blocks, node.n_locks);
  }
}

}  // namespace pagoda::cache
