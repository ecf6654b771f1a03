// KvCache as sessions and operators see it: whole paths, and why a prompt costs what it costs.
#include <algorithm>

#include "base/check.h"
#include "cache/kv_cache.h"
#include "cache/lease_state.h"

namespace pagoda::cache {
namespace {

constexpr size_t kKeptShown = 16;  // tokens

constexpr size_t index_of(Source source) { return static_cast<size_t>(source); }

}  // namespace

PrefixLease KvCache::hold_path(const CacheScope& scope, std::span<const int32_t> tokens) {
  const auto most = static_cast<int32_t>(tokens.size()) / config_.block_size;
  return add_lease(lock_path(scope, tokens, most));
}

std::array<int32_t, 4> KvCache::residency(const CacheScope& scope,
                                          std::span<const int32_t> tokens) const {
  const auto n_whole = static_cast<int32_t>(tokens.size()) / config_.block_size;
  const TreeMatch match = tree_.match(scope, tokens, n_whole);
  std::array<int32_t, 4> n{};
  n[index_of(Source::kDevice)] = match.n_matched * config_.block_size;
  n[index_of(Source::kHost)] = match.n_host * config_.block_size;
  n[index_of(Source::kSsd)] = match.n_ssd * config_.block_size;
  n[index_of(Source::kComputed)] = static_cast<int32_t>(tokens.size()) -
                                   (match.n_matched + match.n_below()) * config_.block_size;
  return n;
}

void KvCache::copy_path_down(const CacheScope& scope, std::span<const int32_t> tokens) {
  if (!has_tiers()) return;
  const PrefixLease lease = hold_path(scope, tokens);
  const NodeId end = lease.state_->end;
  if (config_.tiers.host != nullptr) {
    offload(end, tree_.without_copy(end, TierKind::kHost, 0), TierKind::kHost);
  }
  if (config_.tiers.ssd != nullptr) {
    offload(end, tree_.without_copy(end, TierKind::kSsd, 0), TierKind::kSsd);
  }
}

int32_t KvCache::free_path(const CacheScope& scope, std::span<const int32_t> tokens,
                           bool host_too) {
  std::vector<BlockId> freed;
  cause_ = Cause::kIdle;
  while (tree_.evict_path_end(scope, tokens, freed)) {
  }
  leave(TierKind::kDevice, freed.size());
  free_blocks(freed);
  std::vector<BlockKey> dropped;
  while (host_too && tree_.evict_host_path_end(scope, tokens, dropped)) {
  }
  drop_from_host(dropped);
  leave(TierKind::kHost, dropped.size());
  return static_cast<int32_t>(freed.size() + dropped.size());
}

void KvCache::let_go(const RadixTree::Dropped& dropped) {
  leave(TierKind::kDevice, dropped.blocks.size());
  leave(TierKind::kHost, dropped.host.size());
  leave(TierKind::kSsd, dropped.ssd.size());
  free_blocks(dropped.blocks);
  drop_from_host(dropped.host);
}

void KvCache::drop_path(const CacheScope& scope, std::span<const int32_t> tokens) {
  RadixTree::Dropped dropped;
  cause_ = Cause::kDropped;
  tree_.drop_path(scope, tokens, dropped);
  let_go(dropped);
  for (const BlockKey& key : dropped.ssd) config_.tiers.ssd->drop(key);
}

bool KvCache::drop_salt(const std::string& salt) {
  RadixTree::Dropped dropped;
  cause_ = Cause::kDropped;
  const bool all = tree_.drop_salt(salt, dropped);
  let_go(dropped);
  if (config_.tiers.ssd == nullptr) return all;
  // What the scan has found of it must not enter the tree after this.
  const base::Digest128 digest = salt_digest(salt);
  std::ranges::move(config_.tiers.ssd->take_found(), std::back_inserter(found_));
  std::erase_if(found_, [&](const BlockRecord& record) { return record.salt == digest; });
  config_.tiers.ssd->drop_salt(digest);
  return all;
}

void KvCache::reset() {
  cause_ = Cause::kDropped;
  std::vector<BlockId> freed;
  while (tree_.evict_one(freed)) {
  }
  leave(TierKind::kDevice, freed.size());
  free_blocks(freed);
  std::vector<BlockKey> dropped;
  while (config_.tiers.host != nullptr && tree_.evict_host(dropped)) {
  }
  drop_from_host(dropped);
  leave(TierKind::kHost, dropped.size());
  if (config_.tiers.ssd != nullptr) config_.tiers.ssd->purge();
}

void KvCache::set_priority(const CacheScope& scope, std::span<const int32_t> tokens,
                           uint8_t priority) {
  const PrefixLease lease = hold_path(scope, tokens);
  if (config_.prefix_caching) tree_.set_priority(lease.state_->end, priority);
}

Explanation KvCache::explain(const CacheScope& scope, std::span<const int32_t> tokens) {
  Explanation all;
  if (tokens.empty()) return all;
  // What the SSD has of a scope that nobody has used yet is found under its root.
  take_index();
  const PrefixLease root = hold_path(scope, {});
  const int32_t size = config_.block_size;
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  const int32_t most = max_hit_ordinals(tokens);
  const TreeMatch match = config_.prefix_caching ? tree_.match(scope, tokens, most) : TreeMatch{};
  const int32_t n_device = match.n_matched;
  const int32_t n_found = n_device + match.n_below();
  const std::vector<BlockBelow> below = tree_.below(scope, tokens, n_device, n_found);
  if (n_found > n_device) {
    all.restore = decide(scope, tokens, n_device, n_found, 0);
  }
  if (config_.prefix_caching) {
    if (auto parting = tree_.parting(scope, tokens, kKeptShown)) {
      all.parts_at = parting->position;
      all.kept_instead = std::move(parting->kept);
    }
  }
  const int32_t n_elsewhere = tree_.n_in_other_scopes(scope, tokens);
  const int64_t now_us = clock_ == nullptr ? 0 : clock_->now_us();
  BlockKey key = root_key(config_.identity, GroupId(0), scope);
  for (int32_t begin = 0; begin < n_tokens; begin += size) {
    BlockAccount& block = all.blocks.emplace_back();
    block.begin = begin;
    block.end = std::min(begin + size, n_tokens);
    const int32_t ordinal = begin / size;
    const bool is_whole = ordinal < most;
    if (is_whole) {
      key = block_key(key, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)));
    }
    if (ordinal < n_device) {
      block.source = Source::kDevice;
    } else if (ordinal < n_found && begin >= all.restore.split) {
      const size_t first =
          static_cast<size_t>(ordinal - n_device) * static_cast<size_t>(config_.n_groups);
      const TierKind tier = below[first].tier;
      block.source = tier == TierKind::kHost ? Source::kHost : Source::kSsd;
      block.predicted_s = cost_.restore_s(tier, config_.n_groups);
    } else {
      block.predicted_s = cost_.prefill_s(begin, block.end);
      if (!is_whole) {
        block.miss = Miss::kShort;
      } else if (ordinal < n_found) {
        block.miss = Miss::kCheaper;
      } else if (tree_.has_copy(TierKind::kHost, key) || tree_.has_copy(TierKind::kSsd, key)) {
        block.miss = Miss::kUnreachable;
      } else if (const auto gone = gone_.find(key)) {
        block.miss = Miss::kEvicted;
        block.cause = gone->cause;
        block.age_s = static_cast<double>(now_us - gone->at_us) * 1e-6;
      } else {
        block.miss = ordinal < n_elsewhere ? Miss::kSalt : Miss::kNoPrefix;
      }
      all.predicted_s += n_found > n_device && ordinal < n_found ? 0 : block.predicted_s;
    }
    all.n_tokens[index_of(block.source)] += block.end - block.begin;
  }
  all.predicted_s += all.restore.predicted_s;
  return all;
}

}  // namespace pagoda::cache
