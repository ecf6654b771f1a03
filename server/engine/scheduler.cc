#include "server/engine/scheduler.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace pagoda::engine {
namespace {

// Sequences whose KV comes up while they wait.
constexpr size_t kMostEarly = 8;

// More whole blocks of the sequence's beginning than `known_len` are in `other` too.
bool begins_alike(const Sequence& sequence, const Sequence& other, int32_t known_len,
                  int32_t block_size) {
  if (!(other.scope() == sequence.scope())) return false;
  // So many are enough, and prompts are long.
  const auto n = static_cast<size_t>(known_len + block_size);
  if (other.tokens().size() < n || sequence.tokens().size() <= n) return false;
  return std::ranges::equal(std::span(other.tokens()).first(n),
                            std::span(sequence.tokens()).first(n));
}

// A running sequence and what it ranks as: with a prompt under way it takes the highest priority of
// those that wait for its blocks.
struct Ranked {
  const Sequence* sequence;
  int32_t priority;
};

// Who gives way last: higher priority first, then earlier arrival.
bool ranks_before(const Ranked& a, const Ranked& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  const Request& request_a = a.sequence->request();
  const Request& request_b = b.sequence->request();
  if (request_a.arrival_us != request_b.arrival_us) {
    return request_a.arrival_us < request_b.arrival_us;
  }
  return a.sequence->id() < b.sequence->id();
}

// A plan in the making: the scratch budget that it is checked against.
class Draft {
 public:
  Draft(std::span<Sequence* const> waiting, std::span<Sequence* const> running,
        const Budgets& budgets, const cache::KvCache& cache)
      : cache_(cache),
        n_tokens_left_(budgets.max_tokens),
        n_slots_left_(budgets.max_seqs - static_cast<int32_t>(running.size())),
        n_blocks_left_(cache.n_available()) {
    for (Sequence* sequence : running) {
      running_.push_back({sequence, lent_priority(*sequence, waiting)});
    }
    std::ranges::sort(running_, ranks_before);
    for (Sequence* sequence : waiting) {
      if (sequence->lease()) early_.push_back({sequence, sequence->request().priority});
    }
    std::ranges::sort(early_, ranks_before);
  }

  void add_decodes() {
    std::vector<const Sequence*> decodes;
    for (const Ranked& ranked : running_) {
      if (!ranked.sequence->is_prefill()) decodes.push_back(ranked.sequence);
    }
    std::ranges::stable_sort(decodes, [](const Sequence* a, const Sequence* b) {
      return a->last_planned_step < b->last_planned_step;
    });
    for (const Sequence* sequence : decodes) add_running(*sequence);
  }

  void add_prefills() {
    const std::vector<Ranked> all = running_;
    for (const Ranked& ranked : all) {
      if (ranked.sequence->is_prefill()) add_running(*ranked.sequence);
    }
  }

  // False when the next in line has to wait: nobody behind it may pass.
  bool add_waiting(const Sequence& sequence) {
    if (n_slots_left_ <= 0 || n_tokens_left_ <= 0) return false;
    if (!plan.preempts.empty() || !plan.returns.empty()) return false;
    const int32_t n_tokens = sequence.n_tokens();
    if (cache_.n_blocks_for(n_tokens) > cache_.n_blocks()) {
      plan.rejects.push_back(
          {sequence.id(), fmt::format("the sequence has {} tokens, but the KV cache holds {}",
                                      n_tokens, cache_.max_tokens())});
      return true;
    }
    const int32_t n_cover = std::min(n_tokens + 1, cache_.max_tokens());
    int32_t start = sequence.computed_len();
    int32_t n_needed = 0;
    if (sequence.lease()) {
      n_needed = cache_.n_blocks_to_cover(sequence.lease(), n_cover);
    } else {
      const cache::Probe found =
          cache_.probe(sequence.scope(), sequence.tokens(), sequence.use_cache());
      // What another computes now is worth waiting for.
      if (found.promised_len > found.cached_len || starts_now(sequence, found.cached_len)) {
        return true;
      }
      start = found.cached_len;
      n_needed = cache_.n_blocks_for(n_cover) - cache_.n_blocks_for(start) + found.n_blocks_taken;
    }
    if (n_needed > n_blocks_left_ - n_blocks_owed_) {
      // What is given back may be what was found just now: it is counted anew in the next step.
      while (n_needed > n_blocks_left_ - n_blocks_owed_ && return_early(&sequence)) {
      }
      return false;
    }
    std::erase_if(early_, [&](const Ranked& early) { return early.sequence == &sequence; });
    const int32_t n_pending = sequence.lease() ? sequence.n_pending() : n_tokens - start;
    const int32_t count = std::min(n_tokens_left_, n_pending);
    plan.items.push_back({sequence.id(), start, count, true});
    new_.push_back(&sequence);
    n_blocks_left_ -= n_needed;
    n_tokens_left_ -= count;
    --n_slots_left_;
    return true;
  }

  // What prompts under way will still take after this step.
  void reserve_for_prefills() {
    for (const Ranked& ranked : running_) {
      const Sequence& sequence = *ranked.sequence;
      if (!sequence.is_prefill()) continue;
      const int32_t all = cache_.n_blocks_to_cover(sequence.lease(), sequence.n_tokens());
      n_blocks_owed_ += all - taken(sequence);
    }
  }

  // For one that has to wait, and not for blocks: whether its KV may come up meanwhile. False: no
  // more of them.
  bool add_early(const Sequence& sequence) {
    if (!plan.preempts.empty() || !plan.returns.empty()) return false;
    if (early_.size() >= kMostEarly || ++n_early_looks_ > 2 * kMostEarly) return false;
    if (sequence.lease() || sequence.was_looked_for || !shares(sequence)) return true;
    const auto brings_same = [&](const Ranked& other) {
      return begins_alike(sequence, *other.sequence, 0, cache_.block_size());
    };
    const auto restores_same = [&](const Ranked& other) {
      return other.sequence->has_tail() && brings_same(other);
    };
    if (starts_now(sequence, 0) || std::ranges::any_of(early_, brings_same) ||
        std::ranges::any_of(running_, restores_same)) {
      return true;
    }
    // With a few for each that runs, so that it isn't given back a moment later.
    const int32_t n_needed =
        cache_.n_blocks_for(sequence.n_tokens() + 1) + 2 * static_cast<int32_t>(running_.size());
    if (n_needed > n_blocks_left_ - n_blocks_owed_) return false;
    n_blocks_left_ -= n_needed;
    plan.restores.push_back(sequence.id());
    early_.push_back({&sequence, sequence.request().priority});
    return true;
  }

  bool full() const { return n_tokens_left_ <= 0; }
  BatchPlan plan;

 private:
  bool shares(const Sequence& sequence) const {
    return cache_.prefix_caching() && sequence.use_cache() != cache::UseCache::kNo;
  }

  // A sequence that is new in this plan will compute more blocks of the same beginning.
  bool starts_now(const Sequence& sequence, int32_t cached_len) const {
    return shares(sequence) && std::ranges::any_of(new_, [&](const Sequence* other) {
             return begins_alike(sequence, *other, cached_len, cache_.block_size());
           });
  }

  int32_t lent_priority(const Sequence& owner, std::span<Sequence* const> waiting) const {
    int32_t priority = owner.request().priority;
    if (!owner.is_prefill()) return priority;
    for (const Sequence* sequence : waiting) {
      if (sequence->request().priority > priority && shares(*sequence) &&
          begins_alike(*sequence, owner, owner.computed_len(), cache_.block_size())) {
        priority = sequence->request().priority;
      }
    }
    return priority;
  }

  int32_t taken(const Sequence& sequence) const {
    for (const BatchItem& item : plan.items) {
      if (item.id == sequence.id()) {
        return cache_.n_blocks_to_cover(sequence.lease(), item.start + item.count);
      }
    }
    return 0;
  }

  void add_running(const Sequence& sequence) {
    if (full() || std::ranges::find(plan.preempts, sequence.id()) != plan.preempts.end()) return;
    const int32_t count = std::min(n_tokens_left_, sequence.n_pending());
    if (count <= 0) return;
    const int32_t end = sequence.computed_len() + count;
    const int32_t n_needed = cache_.n_blocks_to_cover(sequence.lease(), end);
    while (n_needed > n_blocks_left_) {
      if (!return_early(nullptr) && !preempt_for(sequence)) return;
    }
    n_blocks_left_ -= n_needed;
    n_tokens_left_ -= count;
    plan.items.push_back({sequence.id(), sequence.computed_len(), count, false});
  }

  // Takes the blocks of the last in rank of those that wait, but not of `except`. False: none has
  // any.
  bool return_early(const Sequence* except) {
    const auto it = std::find_if(early_.rbegin(), early_.rend(),
                                 [&](const Ranked& early) { return early.sequence != except; });
    if (it == early_.rend()) return false;
    plan.returns.push_back(it->sequence->id());
    n_blocks_left_ += cache_.n_reclaimable(it->sequence->lease());
    early_.erase(std::next(it).base());
    return true;
  }

  // Takes the blocks of the last in rank, which may be the sequence itself (then false).
  bool preempt_for(const Sequence& needy) {
    const Sequence* victim = running_.back().sequence;
    running_.pop_back();
    plan.preempts.push_back(victim->id());
    ++n_slots_left_;
    const auto item = std::ranges::find(plan.items, victim->id(), &BatchItem::id);
    if (item != plan.items.end()) {
      n_tokens_left_ += item->count;
      n_blocks_left_ += cache_.n_blocks_to_cover(victim->lease(), item->start + item->count);
      plan.items.erase(item);
    }
    n_blocks_left_ += cache_.n_reclaimable(victim->lease());
    return victim->id() != needy.id();
  }

  const cache::KvCache& cache_;
  int32_t n_tokens_left_;
  int32_t n_slots_left_;
  int32_t n_blocks_left_;
  int32_t n_blocks_owed_ = 0;
  std::vector<Ranked> running_;  // by rank, without those that are preempted
  // Wait and have a lease, by rank, without those that return it; then those of plan.restores.
  std::vector<Ranked> early_;
  std::vector<const Sequence*> new_;
  size_t n_early_looks_ = 0;
};

// Hands out the waiting ones in the order in which they may start.
class WaitingLine {
 public:
  WaitingLine(std::span<Sequence* const> waiting, std::span<Sequence* const> running) {
    for (Sequence* sequence : waiting) {
      waiting_.push_back({sequence, sequence->request().priority});
    }
    std::ranges::sort(waiting_, ranks_before);
    for (const Sequence* sequence : running) count_running(*sequence);
  }

  const Sequence* next() {
    auto best = waiting_.end();
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (best != waiting_.end()) {
        if (it->priority < best->priority) break;
        if (n_running(*it->sequence) >= n_running(*best->sequence)) continue;
      }
      best = it;
    }
    if (best == waiting_.end()) return nullptr;
    const Sequence* sequence = best->sequence;
    waiting_.erase(best);
    return sequence;
  }

  void count_running(const Sequence& sequence) { ++n_running_[sequence.request().tenant]; }

 private:
  int32_t n_running(const Sequence& sequence) const {
    const auto it = n_running_.find(sequence.request().tenant);
    return it == n_running_.end() ? 0 : it->second;
  }

  std::vector<Ranked> waiting_;
  std::map<std::string_view, int32_t> n_running_;  // by tenant
};

}  // namespace

BatchPlan Scheduler::plan(std::span<Sequence* const> waiting, std::span<Sequence* const> running,
                          const Budgets& budgets, const cache::KvCache& cache) const {
  Draft draft(waiting, running, budgets, cache);
  draft.add_decodes();
  draft.add_prefills();
  draft.reserve_for_prefills();
  WaitingLine line(waiting, running);
  const Sequence* next = line.next();
  for (; next != nullptr && !draft.full(); next = line.next()) {
    const size_t n_items = draft.plan.items.size();
    if (!draft.add_waiting(*next)) break;
    if (draft.plan.items.size() > n_items) line.count_running(*next);
  }
  if (!cache.has_tiers()) return std::move(draft.plan);
  for (; next != nullptr && draft.add_early(*next); next = line.next()) {
  }
  return std::move(draft.plan);
}

}  // namespace pagoda::engine
