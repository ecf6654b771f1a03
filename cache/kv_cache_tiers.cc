// KvCache and the tiers below the device: what is copied down, and what comes up.
#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache.h"
#include "cache/lease_state.h"

namespace pagoda::cache {
namespace {

// Blocks found by the SSD's scan that enter the tree in one call.
constexpr size_t kFoundAtOnce = 256;

constexpr size_t index_of(TierKind tier) { return static_cast<size_t>(tier); }

}  // namespace

std::optional<RestoreView> PrefixLease::pending() const {
  if (!state_ || !state_->restore) return std::nullopt;
  const LeaseRestore& restore = *state_->restore;
  const int32_t size = cache_->config_.block_size;
  return RestoreView{restore.low * size, restore.landed * size, restore.end * size};
}

// ---- down ----

void KvCache::copy_down(NodeId end, int32_t from_ordinal, bool is_reuse) {
  const KvTiers& tiers = config_.tiers;
  // Copies in the host tier are always the first of a path, so what is missing above comes too.
  if (tiers.host != nullptr)
    offload(end, tree_.without_copy(end, TierKind::kHost, 0), TierKind::kHost);
  if (tiers.ssd == nullptr) return;
  const bool wanted =
      is_reuse ? tiers.ssd_write != SsdWrite::kEvict
               : tiers.ssd_write == SsdWrite::kEager || tiers.ssd_write == SsdWrite::kAuto;
  if (!wanted) return;
  std::vector<BlockAbove> blocks = tree_.without_copy(end, TierKind::kSsd, from_ordinal);
  if (!is_reuse && tiers.ssd_write == SsdWrite::kAuto && !tiers.ssd->has_budget()) {
    counts_.n_offloads_skipped += std::ssize(blocks);  // they wait for their second use
    return;
  }
  offload(end, std::move(blocks), TierKind::kSsd);
}

void KvCache::offload(NodeId end, std::vector<BlockAbove> blocks, TierKind to) {
  std::erase_if(blocks, [&](const BlockAbove& each) {
    return offloads_.contains(OffloadKey{to, each.record.key});
  });
  if (blocks.empty()) return;
  // What is copied can't be evicted meanwhile: it must not become most of the pool.
  const auto most = static_cast<size_t>(std::max(4, config_.n_blocks / 4));
  auto hold = std::make_shared<Hold>(Hold{end, 0});
  for (BlockAbove& each : blocks) {
    const OffloadKey key{to, each.record.key};
    if (offloads_.size() >= most || (to == TierKind::kHost && !make_host_room())) {
      ++counts_.n_offloads_skipped;
      continue;
    }
    if (hold->n_left++ == 0) hold->end = tree_.hold(end);
    offloads_.emplace(key, hold);
    if (to == TierKind::kHost) ++n_host_offloads_;
    pin(each.block);
    if (config_.tiers.transfer->offload(std::move(each.record), each.block, to)) continue;
    unpin(each.block);
    offloads_.erase(key);
    if (to == TierKind::kHost) --n_host_offloads_;
    if (--hold->n_left == 0) tree_.unhold(end);
    ++counts_.n_offloads_skipped;
  }
}

bool KvCache::make_host_room() {
  HostTier& host = *config_.tiers.host;
  int64_t n_used =
      int64_t{tree_.n_on(TierKind::kHost)} * config_.n_groups + std::ssize(host_early_);
  n_used += n_host_offloads_;
  while (n_used >= host.capacity_blocks()) {
    std::vector<BlockKey> dropped;
    cause_ = Cause::kHostRoom;
    if (!tree_.evict_host(dropped)) return false;
    n_used -= std::ssize(dropped);
    drop_from_host(dropped);
    leave(TierKind::kHost, dropped.size());
  }
  return true;
}

void KvCache::drop_from_host(std::span<const BlockKey> keys) {
  if (config_.tiers.host == nullptr) return;
  for (const BlockKey& key : keys) config_.tiers.host->drop(key);
}

void KvCache::on_offloaded(const TransferDone& done) {
  const auto it = offloads_.find(OffloadKey{done.tier, done.key});
  CHECK(it != offloads_.end());
  const std::shared_ptr<Hold> hold = std::move(it->second);
  offloads_.erase(it);
  if (done.tier == TierKind::kHost) --n_host_offloads_;
  unpin(done.block);
  if (done.status.ok()) {
    if (done.tier == TierKind::kHost) {
      host_early_.push_back(done.key);
    } else if (!tree_.add_copy(done.tier, done.key)) {
      config_.tiers.ssd->drop(done.key);
    }
  } else {
    ++counts_.n_offloads_skipped;
    // Asked at once again it would say the same.
    constexpr int64_t kPauseUs = 1'000'000;
    if (done.tier == TierKind::kSsd) ssd_declines_until_us_ = clock_->now_us() + kPauseUs;
  }
  if (--hold->n_left == 0) tree_.unhold(hold->end);
}

// Copies may arrive in any order; each is placed after its parent, or dropped when that failed.
void KvCache::place_host_copies() {
  while (!host_early_.empty()) {
    const size_t n_before = host_early_.size();
    std::erase_if(host_early_,
                  [&](const BlockKey& key) { return tree_.add_copy(TierKind::kHost, key); });
    if (host_early_.size() == n_before) break;
  }
  if (n_host_offloads_ > 0) return;  // more come
  drop_from_host(host_early_);
  host_early_.clear();
}

// ---- up ----

void KvCache::restore(PrefixLease& lease, std::span<const int32_t> tokens, int32_t n_rows_queued) {
  if (!has_tiers()) return;
  LeaseState& state = *lease.state_;
  const int32_t begin = state.n_tree;
  const int32_t end = restorable_end(state, tokens, max_hit_ordinals(tokens));
  if (end == begin) return;
  const RestoreAnswer answer = decide(state.scope, tokens, begin, end, n_rows_queued);
  if (answer.split >= end * config_.block_size) {
    ++counts_.n_recompute_all;
    return;
  }
  if (!try_extend(lease, end * config_.block_size)) return;
  begin_restore(state, tokens, end, answer);
}

bool KvCache::restore_all(PrefixLease& lease, std::span<const int32_t> tokens) {
  if (!has_tiers()) return false;
  LeaseState& state = *lease.state_;
  const auto most = static_cast<int32_t>(tokens.size()) / config_.block_size;
  const int32_t end = restorable_end(state, tokens, most);
  if (end == state.n_tree) return false;
  return restore_from_front(lease, tokens, end, decide(state.scope, tokens, state.n_tree, end, 0));
}

bool KvCache::restore_from_front(PrefixLease& lease, std::span<const int32_t> tokens, int32_t end,
                                 RestoreAnswer answer) {
  LeaseState& state = *lease.state_;
  answer.split = state.n_tree * config_.block_size;
  answer.predicted_s = answer.restore_all_s;
  if (!try_extend(lease, end * config_.block_size)) return false;
  begin_restore(state, tokens, end, answer);
  return state.restore.has_value();
}

// As long as nobody computes from the front, all of it may as well come up.
PrefixLease KvCache::restore_early(const CacheScope& scope, std::span<const int32_t> tokens,
                                   int32_t n_rows_queued) {
  if (!has_tiers()) return {};
  const int32_t most = max_hit_ordinals(tokens);
  PrefixLease lease = add_lease(lock_path(scope, tokens, most));
  LeaseState& state = *lease.state_;
  const int32_t end = restorable_end(state, tokens, most);
  if (end == state.n_tree) return {};
  const RestoreAnswer answer = decide(scope, tokens, state.n_tree, end, n_rows_queued);
  if (answer.split >= end * config_.block_size) return {};
  if (!restore_from_front(lease, tokens, end, answer)) return {};
  return lease;
}

void KvCache::adopt(PrefixLease& lease, std::span<const int32_t> tokens, UseCache use) {
  LeaseState& state = *lease.state_;
  promise(state, tokens);
  state.is_running = true;
  if (use == UseCache::kYes) {
    counts_.n_hit_tokens += state.ready_len;
    for (size_t tier = 0; tier < state.came_early.size(); ++tier) {
      counts_.n_restored_tokens[tier] += state.came_early[tier];
    }
  }
  if (state.n_tree > 0) copy_down(state.end, 0, true);
  // From here on the front may take over.
  if (state.restore) state.restore->may_move = config_.tiers.restore_policy == RestorePolicy::kAuto;
}

// The ordinal up to which blocks lie below, right behind what the lease has.
int32_t KvCache::restorable_end(const LeaseState& state, std::span<const int32_t> tokens,
                                int32_t max_ordinals) const {
  CHECK(!state.restore.has_value());
  const TreeMatch match = tree_.match(state.scope, tokens, max_ordinals);
  return match.n_matched == state.n_tree ? state.n_tree + match.n_below() : state.n_tree;
}

void KvCache::begin_restore(LeaseState& state, std::span<const int32_t> tokens, int32_t end,
                            const RestoreAnswer& answer) {
  const int32_t begin = state.n_tree;
  const int32_t split = answer.split / config_.block_size;
  state.restore.emplace();
  LeaseRestore& restore = *state.restore;
  restore.end = restore.low = restore.landed = end;
  restore.begin_us = clock_->now_us();
  restore.predicted_s = answer.predicted_s;
  restore.may_move = split > begin;
  ++(split > begin ? counts_.n_restore_both : counts_.n_restore_all);
  start_restore(state, tokens, split, end);
}

RestoreAnswer KvCache::decide(const CacheScope& scope, std::span<const int32_t> tokens,
                              int32_t begin, int32_t end, int32_t n_rows_queued) const {
  RestoreQuestion question;
  question.begin = begin * config_.block_size;
  question.end = end * config_.block_size;
  question.block_size = config_.block_size;
  question.n_rows_queued = n_rows_queued;
  for (const BlockBelow& block : tree_.below(scope, tokens, begin, end)) {
    ++question.n_blocks[index_of(block.tier)];
  }
  question.n_queued = config_.tiers.transfer->stats().n_restores_queued;
  return cost_.decide(question);
}

// Claims ordinals [begin, end), end being what is claimed already.
void KvCache::start_restore(LeaseState& state, std::span<const int32_t> tokens, int32_t begin,
                            int32_t end) {
  LeaseRestore& restore = *state.restore;
  const auto n_groups = static_cast<size_t>(config_.n_groups);
  const std::vector<BlockBelow> below = tree_.below(state.scope, tokens, begin, end);
  if (below.size() != static_cast<size_t>(end - begin) * n_groups) {
    // The tree has changed since it was asked.
    if (restore.items.empty()) state.restore.reset();
    return;
  }
  std::vector<RestoreBlock> blocks;
  for (int32_t ordinal = end - 1; ordinal >= begin; --ordinal) {
    for (size_t g = 0; g < n_groups; ++g) {
      const BlockBelow& from = below[static_cast<size_t>(ordinal - begin) * n_groups + g];
      const BlockId to = state.tables[g][static_cast<size_t>(ordinal)];
      restore.job_items.push_back(restore.items.size());
      restore.items.push_back({to, from.key, from.tier, false});
      blocks.push_back({from.key, from.tier, to});
      pin(to);
    }
  }
  restore.low = begin;
  TransferEngine& transfer = *config_.tiers.transfer;
  if (restore.job != TransferId() && transfer.append(restore.job, blocks)) return;
  restores_.erase(restore.job);
  restore.job_items.erase(restore.job_items.begin(), restore.job_items.end() - std::ssize(blocks));
  restore.job = transfer.restore(std::move(blocks));
  restores_.emplace(restore.job, &state);
}

void KvCache::rebalance(PrefixLease& lease, std::span<const int32_t> tokens, int32_t computed_len) {
  LeaseState& state = *lease.state_;
  if (!state.restore || !state.restore->may_move || state.restore->cut != 0) return;
  LeaseRestore& restore = *state.restore;
  const int32_t front = (computed_len + config_.block_size - 1) / config_.block_size;
  TransferEngine& transfer = *config_.tiers.transfer;
  if (restore.landed == restore.low && restore.low > front) {
    // All that was claimed is there, and the front is still on its way.
    const RestoreAnswer answer = decide(state.scope, tokens, front, restore.low, 0);
    const int32_t split = answer.split / config_.block_size;
    if (split < restore.low) start_restore(state, tokens, split, restore.low);
    return;
  }
  if (front < restore.low || config_.n_groups != 1) return;
  // The front has arrived; it takes over half of what has not begun.
  const int32_t n_waiting = transfer.n_waiting(restore.job);
  if (n_waiting < 2) return;
  const int32_t n = transfer.take_back(restore.job, n_waiting / 2);
  for (int32_t i = 0; i < n; ++i) {
    unpin(restore.items.back().block);
    restore.items.pop_back();
  }
  restore.low += n;
}

void KvCache::on_restored(const TransferDone& done) {
  unpin(done.block);
  if (!done.status.ok() && !absl::IsUnavailable(done.status)) {
    std::vector<BlockKey> dropped;
    cause_ = Cause::kDamaged;
    tree_.remove_copy(done.tier, done.key, dropped);
    drop_from_host(dropped);
    leave(done.tier, 1);
  }
  const auto it = restores_.find(done.id);
  if (it == restores_.end()) return;  // its lease has gone
  LeaseState& state = *it->second;
  LeaseRestore& restore = *state.restore;
  const size_t index = restore.job_items[static_cast<size_t>(done.index)];
  CHECK_LT(index, restore.items.size());
  const auto n_groups = static_cast<size_t>(config_.n_groups);
  const int32_t ordinal = restore.end - 1 - static_cast<int32_t>(index / n_groups);
  ++restore.n_reported;
  if (done.status.ok()) {
    restore.items[index].arrived = true;
    restore.sum_us += done.us;
    if (restore.first_us == 0) restore.first_us = std::max<int64_t>(done.us, 1);
  } else {
    cut_restore(state, ordinal + 1);
  }
  const auto is_there = [&](int32_t each) {
    const size_t first = static_cast<size_t>(restore.end - 1 - each) * n_groups;
    return std::all_of(restore.items.begin() + static_cast<std::ptrdiff_t>(first),
                       restore.items.begin() + static_cast<std::ptrdiff_t>(first + n_groups),
                       [](const LeaseRestore::Item& item) { return item.arrived; });
  };
  const int32_t low = std::max(restore.low, restore.cut);
  while (restore.landed > low && is_there(restore.landed - 1)) --restore.landed;
  if (restore.n_reported < restore.items.size()) return;
  // Nothing writes to the lease's blocks any more.
  restore.low = low;
  if (restore.cut < restore.end) return;
  end_restore(state);
}

// Nothing below the ordinal will come; what has begun must end first, since it writes to blocks
// that the front will compute.
void KvCache::cut_restore(LeaseState& state, int32_t ordinal) {
  LeaseRestore& restore = *state.restore;
  if (restore.cut == 0) ++counts_.n_restores_failed;
  restore.cut = std::max(restore.cut, ordinal);
  for (int32_t n = config_.tiers.transfer->end(restore.job); n > 0; --n) {
    unpin(restore.items.back().block);
    restore.items.pop_back();
  }
}

void KvCache::end_restore(LeaseState& state) {
  if (!state.restore) return;
  LeaseRestore& restore = *state.restore;
  for (int32_t n = config_.tiers.transfer->end(restore.job); n > 0; --n) {
    unpin(restore.items.back().block);
    restore.items.pop_back();
  }
  restores_.erase(restore.job);
  state.restore.reset();
}

std::array<int32_t, 3> KvCache::finish_restore(PrefixLease& lease, UseCache use) {
  LeaseState& state = *lease.state_;
  const LeaseRestore& restore = *state.restore;
  CHECK_EQ(restore.landed, restore.low);
  std::array<int32_t, 3> n_tokens{};
  const auto n_groups = static_cast<size_t>(config_.n_groups);
  const auto n_used = static_cast<size_t>(restore.end - restore.landed) * n_groups;
  std::array<int32_t, 3> n_blocks{};
  for (size_t i = 0; i < n_used; ++i) {
    ++n_blocks[index_of(restore.items[i].tier)];
    if (i % n_groups == 0) n_tokens[index_of(restore.items[i].tier)] += config_.block_size;
  }
  ++counts_.n_restores_done;
  counts_.predicted_s += restore.predicted_s;
  counts_.actual_s += static_cast<double>(clock_->now_us() - restore.begin_us) * 1e-6;
  for (size_t tier = 0; tier < n_blocks.size(); ++tier) {
    if (!state.is_running) {
      state.came_early[tier] += n_tokens[tier];
    } else if (use == UseCache::kYes) {
      counts_.n_restored_tokens[tier] += n_tokens[tier];
    }
    if (n_blocks[tier] == 0) continue;
    const int64_t width =
        std::min<int64_t>(TransferOptions().restore_window, std::ssize(restore.items));
    cost_.observe_restore(static_cast<TierKind>(tier), n_blocks[tier],
                          restore.sum_us / width * n_blocks[tier] / std::ssize(restore.items),
                          restore.first_us);
  }
  end_restore(state);
  return n_tokens;
}

void KvCache::observe_prefill(int32_t position, int32_t n_rows, int64_t us) {
  cost_.observe_prefill(position, n_rows, us);
}

// ---- what has happened ----

bool KvCache::poll() {
  if (!has_tiers()) return false;
  const std::vector<TransferDone> all = config_.tiers.transfer->poll();
  for (const TransferDone& done : all) {
    if (done.is_restore) {
      on_restored(done);
    } else {
      on_offloaded(done);
    }
  }
  // After those: what was damaged is told there as such, and here only as lost.
  const bool found = take_index();
  if (config_.tiers.host != nullptr) place_host_copies();
  if (config_.tiers.ssd_write == SsdWrite::kEvict) write_before_eviction();
  return found || !all.empty();
}

// Keeps a few of the next victims written, so that their places can be taken at once.
void KvCache::write_before_eviction() {
  constexpr size_t kAhead = 16;
  if (config_.tiers.ssd == nullptr || pool_.n_free() > config_.n_blocks / 8) return;
  if (clock_->now_us() < ssd_declines_until_us_) return;
  for (RadixTree::Victims& victims : tree_.next_victims_without(TierKind::kSsd, kAhead)) {
    if (!config_.tiers.ssd->has_budget()) return;
    offload(victims.node, std::move(victims.blocks), TierKind::kSsd);
  }
}

bool KvCache::take_index() {
  SsdTier* const ssd = config_.tiers.ssd;
  if (ssd == nullptr) return false;
  // In this order: what the scan has found is there to be taken once it is done.
  const bool scan_done = index_done_ || ssd->ssd_stats().scan_done;
  std::vector<BlockRecord> found = ssd->take_found();
  found_.insert(found_.end(), std::make_move_iterator(found.begin()),
                std::make_move_iterator(found.end()));
  const bool any = !found_.empty();
  // Before what was lost since: that is newer.
  for (size_t n = 0; n < kFoundAtOnce && !found_.empty(); ++n) {
    tree_.add_found(std::move(found_.back()));
    found_.pop_back();
  }
  index_done_ = scan_done && found_.empty();
  std::vector<BlockKey> none;
  cause_ = Cause::kSsdRoom;
  const std::vector<BlockKey> lost = ssd->take_lost();
  size_t n_left = 0;
  for (const BlockKey& key : lost) {
    // A damaged one, or one that was dropped, has left already.
    n_left += tree_.has_copy(TierKind::kSsd, key) ? 1 : 0;
    tree_.remove_copy(TierKind::kSsd, key, none);
  }
  leave(TierKind::kSsd, n_left);
  return any || !lost.empty();
}

}  // namespace pagoda::cache
