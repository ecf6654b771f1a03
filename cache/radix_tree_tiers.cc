// The tree's copies below the device, and its own check.
#include <algorithm>

#include "base/check.h"
#include "cache/radix_tree.h"

namespace pagoda::cache {
namespace {

constexpr uint8_t bit(TierKind tier) { return static_cast<uint8_t>(1U << static_cast<int>(tier)); }

}  // namespace

bool RadixTree::has_all_groups(const Node& node, int32_t ordinal, TierKind tier) const {
  const auto first = node.copies.begin() +
                     static_cast<std::ptrdiff_t>(ordinal) * static_cast<std::ptrdiff_t>(n_groups_);
  return std::all_of(first, first + static_cast<std::ptrdiff_t>(n_groups_),
                     [&](uint8_t bits) { return (bits & bit(tier)) != 0; });
}

bool RadixTree::parent_is_on_host(NodeId id, int32_t ordinal) const {
  const Node& node = at(id);
  if (ordinal > 0) return node.n_on[kHost] >= ordinal;
  return is_root(node.parent) || at(node.parent).n_on[kHost] == n_ordinals(at(node.parent));
}

bool RadixTree::add_copy(TierKind tier, const BlockKey& key) {
  const auto it = index_.find(key);
  if (it == index_.end() || is_root(it->node)) return false;
  const NodeId id = it->node;
  const size_t index = at_in_node(*it);
  const auto ordinal = static_cast<int32_t>(index / n_groups_);
  if (tier == TierKind::kHost && !parent_is_on_host(id, ordinal)) return false;
  uint8_t& bits = at(id).copies[index];
  if ((bits & bit(tier)) != 0) return true;
  bits |= bit(tier);
  if (!has_all_groups(at(id), ordinal, tier)) return true;
  if (tier == TierKind::kHost) {
    set_n_on(id, kHost, ordinal + 1);
  } else {
    ++at(id).n_on_ssd;
    ++n_on_[static_cast<size_t>(tier)];
  }
  return true;
}

void RadixTree::remove_copy(TierKind tier, const BlockKey& key,
                            std::vector<BlockKey>& host_dropped) {
  const auto it = index_.find(key);
  if (it == index_.end()) return forget_orphan(key);
  if (is_root(it->node)) return;
  const NodeId id = it->node;
  const size_t index = at_in_node(*it);
  const auto ordinal = static_cast<int32_t>(index / n_groups_);
  if (tier == TierKind::kHost) {
    drop_host_from(id, ordinal, host_dropped);
    return;
  }
  uint8_t& bits = at(id).copies[index];
  if ((bits & bit(tier)) == 0) return;
  if (has_all_groups(at(id), ordinal, tier)) {
    --at(id).n_on_ssd;
    --n_on_[static_cast<size_t>(tier)];
  }
  bits &= static_cast<uint8_t>(~bit(tier));
  trim(id);
}

bool RadixTree::has_copy(TierKind tier, const BlockKey& key) const {
  const auto it = index_.find(key);
  if (it == index_.end() || is_root(it->node)) return false;
  return (at(it->node).copies[at_in_node(*it)] & bit(tier)) != 0;
}

void RadixTree::clear_host(NodeId id, int32_t ordinal, std::vector<BlockKey>& dropped) {
  Node& node = at(id);
  for (size_t g = 0; g < n_groups_; ++g) {
    const size_t index = static_cast<size_t>(ordinal) * n_groups_ + g;
    if ((node.copies[index] & bit(TierKind::kHost)) != 0) dropped.push_back(node.keys[index]);
    node.copies[index] &= static_cast<uint8_t>(~bit(TierKind::kHost));
  }
}

void RadixTree::drop_host_from(NodeId id, int32_t ordinal, std::vector<BlockKey>& dropped) {
  const std::vector<NodeId> below = subtree(id);
  for (size_t i = 0; i < below.size(); ++i) {
    for (int32_t n = i == 0 ? ordinal : 0; n < n_ordinals(at(below[i])); ++n) {
      clear_host(below[i], n, dropped);
    }
  }
  // Children before parents.
  for (size_t i = below.size(); i-- > 0;) {
    const int32_t left = i == 0 ? ordinal : 0;
    if (at(below[i]).n_on[kHost] > left) set_n_on(below[i], kHost, left);
  }
  // What is empty goes, and takes parents with it that are.
  for (size_t i = below.size(); i-- > 0;) {
    if (at(below[i]).alive) trim(below[i]);
  }
}

bool RadixTree::evict_host(std::vector<BlockKey>& dropped) {
  if (victims_[kHost].empty()) return false;
  const NodeId id = std::get<NodeId>(*victims_[kHost].begin());
  const int32_t last = at(id).n_on[kHost] - 1;
  clear_host(id, last, dropped);
  set_n_on(id, kHost, last);
  trim(id);
  return true;
}

BlockRecord RadixTree::record_at(NodeId id, int32_t ordinal, size_t group) const {
  const Node& node = at(id);
  const size_t index = static_cast<size_t>(ordinal) * n_groups_ + group;
  const std::vector<BlockKey>& above = at(node.parent).keys;
  BlockRecord record;
  record.key = node.keys[index];
  record.parent =
      ordinal > 0 ? node.keys[index - n_groups_] : above[above.size() - n_groups_ + group];
  record.group = GroupId(static_cast<int16_t>(group));
  record.priority = node.priority;
  record.salt = salt_digest(root_scopes_.at(node.root).first);
  const std::span<const int32_t> tokens = block_tokens(node, ordinal);
  record.tokens.assign(tokens.begin(), tokens.end());
  return record;
}

std::vector<BlockAbove> RadixTree::without_copy(NodeId end, TierKind tier, int32_t from) const {
  std::vector<BlockAbove> found;
  for (const NodeId id : path_to(end)) {
    const Node& node = at(id);
    const int32_t n = node.n_on[kDevice];
    if (node.begin + n <= from) continue;
    const int32_t n_there = tier == TierKind::kHost ? node.n_on[kHost] : node.n_on_ssd;
    if (n_there == n_ordinals(node)) continue;
    for (int32_t i = std::max(0, from - node.begin); i < n; ++i) {
      for (size_t g = 0; g < n_groups_; ++g) {
        const size_t index = static_cast<size_t>(i) * n_groups_ + g;
        if ((node.copies[index] & bit(tier)) == 0) {
          found.push_back({record_at(id, i, g), node.blocks[index]});
        }
      }
    }
  }
  return found;
}

void RadixTree::add_found(BlockRecord record) {
  if (record.tokens.size() != static_cast<size_t>(block_size_)) return;
  if (record.group.value() < 0 || static_cast<size_t>(record.group.value()) >= n_groups_) return;
  if (block_key(record.parent, record.tokens) != record.key) return;  // names what it is not
  const BlockKey parent = record.parent;
  attach(parent, std::move(record));
}

void RadixTree::attach(const BlockKey& parent, BlockRecord record) {
  const BlockKey key = record.key;
  if (!index_.contains(key)) {
    const auto it = index_.find(parent);
    if (it == index_.end()) {
      std::vector<BlockRecord>& waiting = orphans_[parent];
      if (std::ranges::find(waiting, key, &BlockRecord::key) == waiting.end()) {
        waiting.push_back(std::move(record));
        ++n_orphans_;
      }
      return;
    }
    NodeId above = it->node;
    const auto group = static_cast<size_t>(record.group.value());
    const size_t index = at_in_node(*it);
    if (index % n_groups_ != group) return;  // the parent is of another group
    const auto ordinal = static_cast<int32_t>(index / n_groups_);
    if (!is_root(above) && ordinal + 1 < n_ordinals(at(above))) above = split(above, ordinal + 1);
    const std::vector<BlockKey>& keys = at(above).keys;
    std::vector<BlockKey> mine(keys.end() - static_cast<std::ptrdiff_t>(n_groups_), keys.end());
    for (BlockKey& each : mine) each = block_key(each, record.tokens);
    // A leaf below the device that nobody holds grows; anything else gets a child.
    const bool grows = !is_root(above) && at(above).n_children == 0 && at(above).n_locks == 0;
    append_known(grows ? above : new_child(above), record.tokens, mine);
  }
  add_copy(TierKind::kSsd, key);
  adopt_orphans(key);
}

// Works off a list, since a chain may be as long as a prompt.
void RadixTree::adopt_orphans(const BlockKey& parent) {
  if (orphans_.empty() || adopting_)
    return adopting_ ? void(adopt_queue_.push_back(parent)) : void();
  adopting_ = true;
  adopt_queue_ = {parent};
  for (size_t i = 0; i < adopt_queue_.size(); ++i) {
    const auto it = orphans_.find(adopt_queue_[i]);
    if (it == orphans_.end()) continue;
    const BlockKey key = it->first;
    std::vector<BlockRecord> records = std::move(it->second);
    orphans_.erase(it);
    n_orphans_ -= records.size();
    for (BlockRecord& record : records) attach(key, std::move(record));
  }
  adopt_queue_.clear();
  adopting_ = false;
}

void RadixTree::forget_orphan(const BlockKey& key) {
  for (auto it = orphans_.begin(); it != orphans_.end(); ++it) {
    const size_t n = std::erase_if(it->second, [&](const BlockRecord& r) { return r.key == key; });
    n_orphans_ -= n;
    if (n == 0) continue;
    if (it->second.empty()) orphans_.erase(it);
    return;
  }
}

std::vector<NodeId> RadixTree::subtree(NodeId id) const {
  std::vector<NodeId> all = {id};
  for (size_t i = 0; i < all.size(); ++i) {
    const NodeId parent = all[i];
    for (auto it = children_.lower_bound(ChildKey{parent, {}});
         it != children_.end() && at(*it).parent == parent; ++it) {
      all.push_back(*it);
    }
  }
  return all;
}

void RadixTree::drop_copies(NodeId id, Dropped& dropped) {
  Node& node = at(id);
  for (size_t i = 0; i < node.copies.size(); ++i) {
    if ((node.copies[i] & bit(TierKind::kHost)) != 0) dropped.host.push_back(node.keys[i]);
    if ((node.copies[i] & bit(TierKind::kSsd)) != 0) dropped.ssd.push_back(node.keys[i]);
    node.copies[i] = 0;
  }
  n_on_[static_cast<size_t>(TierKind::kSsd)] -= std::exchange(node.n_on_ssd, 0);
  if (node.n_on[kHost] > 0) set_n_on(id, kHost, 0);
}

void RadixTree::drop_blocks(NodeId id, Dropped& dropped) {
  Node& node = at(id);
  dropped.blocks.insert(dropped.blocks.end(), node.blocks.begin(), node.blocks.end());
  node.blocks.clear();
  if (node.n_on[kDevice] > 0) set_n_on(id, kDevice, 0);
}

void RadixTree::drop_path(const CacheScope& scope, std::span<const int32_t> tokens,
                          Dropped& dropped) {
  const NodeId* root = find_root(scope);
  if (root == nullptr) return;
  NodeId id = *root;
  walk(*root, tokens, [&](NodeId node, int32_t n) {
    if (n == n_ordinals(at(node))) id = node;
  });
  while (!is_root(id) && at(id).n_children == 0 && at(id).n_locks == 0) {
    const NodeId parent = at(id).parent;
    drop_copies(id, dropped);
    drop_blocks(id, dropped);
    trim(id);  // the parents too, where they hold nothing else
    if (!at(parent).alive) return;
    id = parent;
  }
}

bool RadixTree::drop_salt(const std::string& salt, Dropped& dropped) {
  std::vector<NodeId> roots;
  for (const auto& [scope, root] : roots_) {
    if (scope.first == salt) roots.push_back(root);
  }
  bool all = true;
  for (const NodeId root : roots) {
    all &= at(root).n_locks == 0;
    const std::vector<NodeId> nodes = subtree(root);
    for (size_t i = nodes.size(); i-- > 1;) {
      const NodeId id = nodes[i];
      if (!at(id).alive) continue;  // it went with its last child
      drop_copies(id, dropped);
      if (at(id).n_locks > 0) continue;
      drop_blocks(id, dropped);
      trim(id);
    }
  }
  const base::Digest128 digest = salt_digest(salt);
  absl::erase_if(orphans_, [&](auto& waiting) {
    n_orphans_ -= std::erase_if(waiting.second,
                                [&](const BlockRecord& record) { return record.salt == digest; });
    return waiting.second.empty();
  });
  return all;
}

std::optional<RadixTree::Parting> RadixTree::parting(const CacheScope& scope,
                                                     std::span<const int32_t> tokens,
                                                     size_t most) const {
  const NodeId* root = find_root(scope);
  if (root == nullptr) return std::nullopt;
  NodeId end = *root;
  int32_t n_of_end = 0;
  walk(*root, tokens, [&](NodeId id, int32_t n) {
    end = id;
    n_of_end = n;
  });
  const int32_t n_above = is_root(end) ? 0 : at(end).begin + n_of_end;
  tokens = tokens.subspan(static_cast<size_t>(n_above) * static_cast<size_t>(block_size_));
  // Either the node goes on, or one of the children next to where `tokens` would stand does.
  std::span<const int32_t> kept;
  size_t n_same = 0;
  const auto offer = [&](std::span<const int32_t> other) {
    const auto [differs, unused] = std::ranges::mismatch(other, tokens);
    const auto n = static_cast<size_t>(differs - other.begin());
    if (!kept.empty() && n <= n_same) return;
    kept = other;
    n_same = n;
  };
  if (!is_root(end) && n_of_end < n_ordinals(at(end))) {
    offer(std::span(at(end).tokens)
              .subspan(static_cast<size_t>(n_of_end) * static_cast<size_t>(block_size_)));
  } else {
    auto it = children_.lower_bound(ChildKey{end, tokens});
    if (it != children_.end() && at(*it).parent == end) offer(at(*it).tokens);
    if (it != children_.begin() && at(*--it).parent == end) offer(at(*it).tokens);
  }
  if (kept.empty() || n_same == tokens.size()) return std::nullopt;
  kept = kept.subspan(n_same);
  kept = kept.first(std::min(most, kept.size()));
  return Parting{n_above * block_size_ + static_cast<int32_t>(n_same), {kept.begin(), kept.end()}};
}

int32_t RadixTree::n_in_other_scopes(const CacheScope& scope,
                                     std::span<const int32_t> tokens) const {
  constexpr int kLooked = 64;  // clients may make many
  int32_t longest = 0;
  int n_looked = 0;
  for (const auto& [key, root] : roots_) {
    if (key.first == scope.salt && key.second == scope.adapter) continue;
    if (++n_looked > kLooked) break;
    int32_t n_same = 0;
    walk(root, tokens, [&](NodeId, int32_t n) { n_same += n; });
    longest = std::max(longest, n_same);
  }
  return longest;
}

std::vector<RadixTree::Victims> RadixTree::next_victims_without(TierKind tier, size_t most) const {
  constexpr int kLooked = 32;
  std::vector<Victims> found;
  int n_looked = 0;
  size_t n_found = 0;
  for (const VictimKey& victim : victims_[kDevice]) {
    if (++n_looked > kLooked || n_found >= most) break;
    const NodeId id = std::get<NodeId>(victim);
    const Node& node = at(id);
    Victims victims{id, {}};
    for (int32_t i = node.n_on[kDevice]; i-- > 0 && n_found < most;) {
      for (size_t g = 0; g < n_groups_; ++g) {
        const size_t index = static_cast<size_t>(i) * n_groups_ + g;
        if ((node.copies[index] & bit(tier)) != 0) continue;
        victims.blocks.push_back({record_at(id, i, g), node.blocks[index]});
        ++n_found;
      }
    }
    if (!victims.blocks.empty()) found.push_back(std::move(victims));
  }
  return found;
}

void RadixTree::check() const {
  std::array<int32_t, 3> n_on{};
  int32_t n_evictable = 0;
  size_t n_places = 0;
  std::array<size_t, kPrefixTiers> n_victims{};
  std::vector<int32_t> n_children(nodes_.size(), 0);
  std::array<std::vector<int32_t>, kPrefixTiers> n_children_on;
  n_children_on.fill(n_children);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const NodeId id(static_cast<int32_t>(i));
    if (!node.alive) continue;
    for (size_t k = 0; k < node.keys.size(); ++k) {
      const Place place{id, node.begin * static_cast<int32_t>(n_groups_) + static_cast<int32_t>(k)};
      CHECK(index_.contains(place));
      ++n_places;
    }
    if (is_root(id)) {
      CHECK_EQ(node.tokens.size(), size_t{0});
      CHECK_EQ(node.keys.size(), n_groups_);
      continue;
    }
    const int32_t n = n_ordinals(node);
    const Node& parent = at(node.parent);
    CHECK_GT(n, 0);
    CHECK_EQ(node.tokens.size(), static_cast<size_t>(n) * static_cast<size_t>(block_size_));
    CHECK_EQ(node.keys.size(), static_cast<size_t>(n) * n_groups_);
    CHECK_EQ(node.copies.size(), node.keys.size());
    CHECK_EQ(node.blocks.size(), static_cast<size_t>(node.n_on[kDevice]) * n_groups_);
    CHECK(parent.alive);
    CHECK_EQ(node.begin, is_root(node.parent) ? 0 : parent.begin + n_ordinals(parent));
    CHECK_LE(node.n_locks, parent.n_locks);
    if (node.n_locks > 0) CHECK_EQ(node.n_on[kDevice], n);
    ++n_children[static_cast<size_t>(node.parent.value())];
    const NodeId* found = find_child(node.parent, node.tokens);
    CHECK(found != nullptr && *found == id);
    int32_t n_on_ssd = 0;
    for (int32_t k = 0; k < n; ++k) {
      CHECK_EQ(has_all_groups(node, k, TierKind::kHost), k < node.n_on[kHost]);
      if (has_all_groups(node, k, TierKind::kSsd)) ++n_on_ssd;
    }
    CHECK_EQ(n_on_ssd, node.n_on_ssd);
    n_on[static_cast<size_t>(TierKind::kSsd)] += n_on_ssd;
    for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
      n_on[tier] += node.n_on[tier];
      CHECK_LE(node.n_on[tier], n);
      CHECK_EQ(node.is_victim[tier], may_be_victim(id, tier));
      CHECK_EQ(node.is_victim[tier], victims_[tier].contains(victim_key(id)));
      if (node.is_victim[tier]) ++n_victims[tier];
      if (node.n_on[tier] == 0) continue;
      ++n_children_on[tier][static_cast<size_t>(node.parent.value())];
      CHECK(is_root(node.parent) || parent.n_on[tier] == n_ordinals(parent));
    }
    if (node.n_locks == 0) n_evictable += node.n_on[kDevice];
    // What lies nowhere is there only for what is behind it.
    const auto last = node.copies.end() - static_cast<std::ptrdiff_t>(n_groups_);
    CHECK(node.n_children > 0 || node.n_on[kDevice] == n ||
          std::any_of(last, node.copies.end(), [](uint8_t bits) { return bits != 0; }));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].alive) continue;
    CHECK_EQ(n_children[i], nodes_[i].n_children);
    for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
      CHECK_EQ(n_children_on[tier][i], nodes_[i].n_children_on[tier]);
    }
  }
  CHECK(n_on == n_on_);
  CHECK_EQ(n_evictable, n_evictable_);
  CHECK_EQ(n_places, index_.size());
  for (size_t tier = 0; tier < kPrefixTiers; ++tier) {
    CHECK_EQ(n_victims[tier], victims_[tier].size());
  }
}

}  // namespace pagoda::cache
