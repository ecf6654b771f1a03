#include "cache/kv_cache.h"

#include <algorithm>

#include "base/check.h"
#include "cache/lease_state.h"

namespace pagoda::cache {

PrefixLease::PrefixLease() = default;
PrefixLease::PrefixLease(KvCache* cache, std::unique_ptr<State> state)
    : cache_(cache), state_(std::move(state)) {}
PrefixLease::PrefixLease(PrefixLease&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), state_(std::move(other.state_)) {}
PrefixLease& PrefixLease::operator=(PrefixLease&& other) noexcept {
  if (this != &other) {
    if (cache_ != nullptr) cache_->release_state(*state_);
    cache_ = std::exchange(other.cache_, nullptr);
    state_ = std::move(other.state_);
  }
  return *this;
}
PrefixLease::~PrefixLease() {
  if (cache_ != nullptr) cache_->release_state(*state_);
}
std::span<const BlockCopy> PrefixLease::copies() const { return state_->copies; }
int32_t PrefixLease::ready_len() const { return state_->ready_len; }
std::span<const std::vector<BlockId>> PrefixLease::tables() const { return state_->tables; }

KvCache::KvCache(KvCacheConfig config, const base::Clock* clock)
    : config_(config),
      clock_(clock),
      pool_(config.n_blocks),
      tree_(config.block_size, config.n_groups, config.identity),
      cost_(config.tiers.restore_policy),
      pins_(static_cast<size_t>(config.n_blocks), 0) {
  CHECK(!has_tiers() || clock != nullptr);
  CHECK_GT(config.block_size, 0);
  CHECK_EQ(config.block_size % kPageTokens, 0);
  CHECK_GT(config.n_groups, 0);
  tree_.on_gone([this](const BlockKey& key) {
    gone_.add(key, {clock_ == nullptr ? 0 : clock_->now_us(), cause_});
  });
}

KvCache::~KvCache() { CHECK_EQ(leases_.size(), size_t{0}); }

int32_t KvCache::max_hit_ordinals(std::span<const int32_t> tokens) const {
  CHECK(!tokens.empty());
  return static_cast<int32_t>(tokens.size() - 1) / config_.block_size;
}

Probe KvCache::probe(const CacheScope& scope, std::span<const int32_t> tokens, UseCache use) const {
  Probe found;
  if (!config_.prefix_caching || use == UseCache::kNo) return found;
  const int32_t most = max_hit_ordinals(tokens);
  const TreeMatch match = tree_.match(scope, tokens, most);
  found.cached_len = match.n_matched * config_.block_size;
  found.promised_len = found.cached_len;
  found.n_blocks_taken = match.n_unlocked * config_.n_groups;
  found.host_len = match.n_host * config_.block_size;
  found.ssd_len = match.n_ssd * config_.block_size;
  for (const LeaseState* owner : leases_) {
    if (owner->promised_end <= match.n_matched || !(owner->scope == scope)) continue;
    const auto [end, unused] = std::ranges::mismatch(owner->promised, tokens);
    const auto same = static_cast<int32_t>(end - owner->promised.begin()) / config_.block_size;
    found.promised_len = std::max(found.promised_len, std::min(same, most) * config_.block_size);
  }
  return found;
}

PrefixLease KvCache::acquire(const CacheScope& scope, std::span<const int32_t> tokens,
                             UseCache use) {
  const int32_t most = use == UseCache::kNo ? 0 : max_hit_ordinals(tokens);
  std::unique_ptr<LeaseState> state = lock_path(scope, tokens, most);
  state->is_running = true;
  if (config_.prefix_caching) {
    promise(*state, tokens);
    if (use != UseCache::kNo) copy_partial(*state, tokens);
    if (use == UseCache::kYes) counts_.n_hit_tokens += state->ready_len;
    if (has_tiers() && state->n_tree > 0) copy_down(state->end, 0, true);
  }
  return add_lease(std::move(state));
}

std::unique_ptr<KvCache::LeaseState> KvCache::lock_path(const CacheScope& scope,
                                                        std::span<const int32_t> tokens,
                                                        int32_t max_ordinals) {
  auto state = std::make_unique<LeaseState>();
  state->scope = scope;
  state->tables.resize(static_cast<size_t>(config_.n_groups));
  if (!config_.prefix_caching) return state;
  state->end = tree_.lock(scope, tokens, max_ordinals, state->tables);
  state->n_tree = static_cast<int32_t>(state->tables[0].size());
  state->ready_len = state->n_tree * config_.block_size;
  return state;
}

// The whole blocks behind what is in the tree.
void KvCache::promise(LeaseState& state, std::span<const int32_t> tokens) {
  const int32_t n_whole = static_cast<int32_t>(tokens.size()) / config_.block_size;
  if (n_whole <= state.n_tree) return;
  state.promised_end = n_whole;
  state.promised.assign(tokens.begin(), tokens.begin() + n_whole * config_.block_size);
}

// Only where nothing lies below that would come up instead, and without evicting for it.
void KvCache::copy_partial(LeaseState& state, std::span<const int32_t> tokens) {
  if (pool_.n_free() < config_.n_groups) return;
  const std::span<const int32_t> wanted = tokens.first(tokens.size() - 1);
  const auto partial = tree_.match_partial(state.scope, wanted);
  if (!partial || tree_.match(state.scope, tokens, max_hit_ordinals(tokens)).n_below() > 0) return;
  for (size_t g = 0; g < state.tables.size(); ++g) {
    const BlockId to = *pool_.try_allocate();
    state.tables[g].push_back(to);
    state.copies.push_back({partial->blocks[g], to});
  }
  state.ready_len += partial->n_tokens;
  counts_.n_partial_tokens += partial->n_tokens;
}

PrefixLease KvCache::add_lease(std::unique_ptr<LeaseState> state) {
  state->index = leases_.size();
  leases_.push_back(state.get());
  return PrefixLease(this, std::move(state));
}

int32_t KvCache::n_blocks_for(int32_t n_tokens) const {
  return (n_tokens + config_.block_size - 1) / config_.block_size * config_.n_groups;
}

int32_t KvCache::n_blocks_to_cover(const PrefixLease& lease, int32_t n_tokens) const {
  const auto have = static_cast<int32_t>(lease.state_->tables[0].size()) * config_.n_groups;
  return std::max(0, n_blocks_for(n_tokens) - have);
}

int32_t KvCache::n_available() const {
  return pool_.n_free() + tree_.n_evictable() * config_.n_groups;
}

int32_t KvCache::max_tokens() const {
  return config_.n_blocks / config_.n_groups * config_.block_size;
}

bool KvCache::try_extend(PrefixLease& lease, int32_t n_tokens) {
  const int32_t n_new = n_blocks_to_cover(lease, n_tokens);
  if (n_new > n_available()) return false;
  for (int32_t i = 0; i < n_new / config_.n_groups; ++i) {
    for (std::vector<BlockId>& table : lease.state_->tables) allocate(table);
  }
  return true;
}

void KvCache::allocate(std::vector<BlockId>& table) {
  std::optional<BlockId> block = pool_.try_allocate();
  if (!block) {
    scratch_.clear();
    cause_ = Cause::kDeviceRoom;
    CHECK(tree_.evict_one(scratch_));
    leave(TierKind::kDevice, scratch_.size());
    free_blocks(scratch_);
    block = pool_.try_allocate();
    CHECK(block.has_value());
  }
  table.push_back(*block);
}

void KvCache::commit(PrefixLease& lease, std::span<const int32_t> tokens, int32_t computed_len) {
  if (!config_.prefix_caching) return;
  LeaseState& state = *lease.state_;
  const int32_t n_whole = computed_len / config_.block_size;
  CHECK_LE(n_whole, static_cast<int32_t>(state.tables[0].size()));
  if (n_whole <= state.n_tree) return;
  const auto begin = static_cast<size_t>(state.n_tree) * static_cast<size_t>(config_.block_size);
  const auto end = static_cast<size_t>(n_whole) * static_cast<size_t>(config_.block_size);
  scratch_.clear();
  state.end = tree_.insert(state.end, tokens.subspan(begin, end - begin), state.n_tree,
                           state.tables, scratch_);
  counts_.n_twins_dropped += static_cast<int64_t>(scratch_.size());
  free_blocks(scratch_);
  if (has_tiers()) copy_down(state.end, state.n_tree, false);
  state.n_tree = n_whole;
  if (state.n_tree >= state.promised_end) {
    state.promised_end = 0;
    state.promised.clear();
  }
}

void KvCache::release(PrefixLease lease) {
  if (lease) lease = PrefixLease();
}

void KvCache::release_state(LeaseState& state) {
  end_restore(state);
  leases_[state.index] = leases_.back();
  leases_[state.index]->index = state.index;
  leases_.pop_back();
  for (const std::vector<BlockId>& table : state.tables) {
    free_blocks(std::span(table).subspan(static_cast<size_t>(state.n_tree)));
  }
  if (config_.prefix_caching) tree_.unlock(state.end);
}

void KvCache::leave(TierKind tier, size_t n_copies) {
  const auto n = static_cast<int64_t>(n_copies);
  counts_.n_left[static_cast<size_t>(tier)][static_cast<size_t>(cause_)] += n;
  if (tier == TierKind::kDevice) counts_.n_evicted += n;
}

void KvCache::free_blocks(std::span<const BlockId> blocks) { CHECK(pool_.release(blocks)); }

void KvCache::pin(BlockId block) {
  pool_.pin({&block, 1});
  ++pins_[static_cast<size_t>(block.value())];
}

void KvCache::unpin(BlockId block) {
  CHECK_GT(pins_[static_cast<size_t>(block.value())], 0);
  --pins_[static_cast<size_t>(block.value())];
  free_blocks({&block, 1});
}

int32_t KvCache::n_reclaimable(const PrefixLease& lease) const {
  const LeaseState& state = *lease.state_;
  const auto n_private = static_cast<int32_t>(state.tables[0].size()) - state.n_tree;
  const int32_t n_alone = config_.prefix_caching ? tree_.n_held_alone(state.end) : 0;
  // What a transfer still writes to is free only after it.
  const auto n_moving =
      state.restore ? static_cast<int32_t>(state.restore->items.size() - state.restore->n_reported)
                    : 0;
  return (n_private + n_alone) * config_.n_groups - n_moving;
}

int32_t KvCache::n_promised(const LeaseState& state) const {
  const auto size = static_cast<int32_t>(state.tables[0].size());
  return std::max(0, std::min(size, state.promised_end) - state.n_tree) * config_.n_groups;
}

KvCacheStats KvCache::stats() const {
  KvCacheStats stats = counts_;
  stats.n_blocks = config_.n_blocks;
  stats.n_free = pool_.n_free();
  stats.n_cached = tree_.n_evictable() * config_.n_groups;
  for (const LeaseState* state : leases_) stats.n_promised += n_promised(*state);
  stats.n_in_use = stats.n_blocks - stats.n_free - stats.n_cached - stats.n_promised;
  for (const TierKind tier : {TierKind::kDevice, TierKind::kHost, TierKind::kSsd}) {
    stats.n_on[static_cast<size_t>(tier)] = int64_t{tree_.n_on(tier)} * config_.n_groups;
  }
  return stats;
}

void KvCache::check() const {
  tree_.check();
  check_leases();
  // Who holds which block, counted from the tree and the leases' private tails.
  std::vector<int32_t> n_held(static_cast<size_t>(config_.n_blocks), 0);
  const auto hold = [&](BlockId block) { ++n_held[static_cast<size_t>(block.value())]; };
  int32_t n_locked = 0;
  int32_t n_cached = 0;
  tree_.visit([&](NodeId, NodeId, std::span<const BlockId> blocks, int32_t n_locks) {
    std::ranges::for_each(blocks, hold);
    (n_locks > 0 ? n_locked : n_cached) += static_cast<int32_t>(blocks.size());
  });
  int32_t n_private = 0;
  for (const LeaseState* state : leases_) {
    for (const std::vector<BlockId>& table : state->tables) {
      const auto tail = std::span(table).subspan(static_cast<size_t>(state->n_tree));
      std::ranges::for_each(tail, hold);
      n_private += static_cast<int32_t>(tail.size());
    }
  }
  int32_t n_free = 0;
  int32_t n_moving = 0;  // held by nothing but a transfer
  for (int32_t i = 0; i < config_.n_blocks; ++i) {
    const int32_t held = n_held[static_cast<size_t>(i)];
    const int32_t pins = pins_[static_cast<size_t>(i)];
    CHECK_EQ(held + pins, pool_.ref_count(BlockId(i)));
    CHECK_LE(held, 1);
    if (held + pins == 0) ++n_free;
    if (held == 0 && pins > 0) ++n_moving;
  }
  const KvCacheStats stats = this->stats();
  CHECK_EQ(stats.n_free, n_free);
  CHECK_EQ(stats.n_cached, n_cached);
  CHECK_EQ(stats.n_in_use + stats.n_promised, n_locked + n_private + n_moving);
  CHECK_EQ(n_free + n_cached + n_locked + n_private + n_moving, config_.n_blocks);
}

// A lease's table begins with the blocks of the path that it locks, and the locks of every node are
// the leases whose path runs through it, and the holds of paths that are copied down.
void KvCache::check_leases() const {
  std::vector<std::pair<NodeId, int32_t>> found;
  std::vector<NodeId> parents;
  tree_.visit([&](NodeId node, NodeId parent, std::span<const BlockId>, int32_t n_locks) {
    found.emplace_back(node, n_locks);
    parents.resize(std::max(parents.size(), static_cast<size_t>(node.value()) + 1));
    parents[static_cast<size_t>(node.value())] = parent;
  });
  std::vector<int32_t> n_locks(parents.size(), 0);
  const auto count_path = [&](NodeId end) {
    for (NodeId node = end;; node = parents[static_cast<size_t>(node.value())]) {
      ++n_locks[static_cast<size_t>(node.value())];
      if (parents[static_cast<size_t>(node.value())] == node) break;
    }
  };
  absl::flat_hash_map<const Hold*, int32_t> holds;
  int32_t n_to_host = 0;
  for (const auto& [key, hold] : offloads_) {
    if (++holds[hold.get()] == 1) count_path(hold->end);
    if (key.tier == TierKind::kHost) ++n_to_host;
  }
  CHECK_EQ(n_to_host, n_host_offloads_);
  for (const auto& [hold, n] : holds) CHECK_EQ(n, hold->n_left);
  for (const LeaseState* state : leases_) {
    std::vector<std::vector<BlockId>> path(state->tables.size());
    if (config_.prefix_caching) {
      tree_.path_blocks(state->end, path);
      count_path(state->end);
    }
    for (size_t g = 0; g < path.size(); ++g) {
      const std::vector<BlockId>& table = state->tables[g];
      CHECK_EQ(table.size(), state->tables[0].size());
      CHECK_EQ(path[g].size(), static_cast<size_t>(state->n_tree));
      CHECK(std::equal(path[g].begin(), path[g].end(), table.begin()));
    }
  }
  for (const auto& [node, n] : found) CHECK_EQ(n_locks[static_cast<size_t>(node.value())], n);
}

}  // namespace pagoda::cache
