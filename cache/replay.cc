#include "cache/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/tier.h"
#include "cache/token_bucket.h"

namespace pagoda::cache {
namespace {

constexpr size_t kDevice = static_cast<size_t>(TierKind::kDevice);
constexpr size_t kHost = static_cast<size_t>(TierKind::kHost);
constexpr size_t kSsd = static_cast<size_t>(TierKind::kSsd);
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
constexpr double kDayUs = 24.0 * 3600e6;

// Blocks that may go, lowest first; each knows its place, so that any can be taken out.
class VictimHeap {
 public:
  explicit VictimHeap(size_t n_nodes) : places_(n_nodes, -1) {}

  bool empty() const { return items_.empty(); }
  bool contains(int32_t node) const { return places_[index(node)] >= 0; }
  int32_t top() const { return items_.front().node; }
  void push(int32_t node, int32_t priority, double key) {
    items_.emplace_back();
    sift_up(items_.size() - 1, {key, priority, node});
  }
  void remove(int32_t node) {
    const auto at = static_cast<size_t>(places_[index(node)]);
    places_[index(node)] = -1;
    const Item last = items_.back();
    items_.pop_back();
    if (at == items_.size()) return;
    if (at > 0 && last < items_[(at - 1) / kFan]) {
      sift_up(at, last);
    } else {
      sift_down(at, last);
    }
  }

 private:
  static constexpr size_t kFan = 4;
  struct Item {
    double key = 0;
    int32_t priority = 0;
    int32_t node = 0;
    // Of equals the block that came to be later goes first.
    bool operator<(const Item& other) const {
      if (priority != other.priority) return priority < other.priority;
      if (key != other.key) return key < other.key;
      return node > other.node;
    }
  };

  static size_t index(int32_t node) { return static_cast<size_t>(node); }
  void place(size_t at, const Item& item) {
    items_[at] = item;
    places_[index(item.node)] = static_cast<int32_t>(at);
  }
  void sift_up(size_t at, Item item) {
    while (at > 0 && item < items_[(at - 1) / kFan]) {
      place(at, items_[(at - 1) / kFan]);
      at = (at - 1) / kFan;
    }
    place(at, item);
  }
  void sift_down(size_t at, Item item) {
    while (true) {
      const size_t first = at * kFan + 1;
      if (first >= items_.size()) break;
      size_t least = first;
      const size_t end = std::min(first + kFan, items_.size());
      for (size_t i = first + 1; i < end; ++i) {
        if (items_[i] < items_[least]) least = i;
      }
      if (!(items_[least] < item)) break;
      place(at, items_[least]);
      at = least;
    }
    place(at, item);
  }

  std::vector<Item> items_;
  std::vector<int32_t> places_;  // by node; -1: not in it
};

// How often blocks of a kind were used again. What a kind is: how often the block was used, whether
// its request had found it, computed it or answered with it, what share of its prompt that request
// had found, and how long that was.
class ReplayChance {
 public:
  static constexpr int kKinds = 4 * 3 * 3 * 3;

  static uint8_t kind_of(int32_t n_uses, int part, int share, int length) {
    const int uses = n_uses >= 5 ? 3 : n_uses >= 3 ? 2 : n_uses - 1;
    return static_cast<uint8_t>(((uses * 3 + part) * 3 + share) * 3 + length);
  }
  void used(uint8_t kind) {
    n_used_[kind] += 1;
    if (n_used_[kind] < kFade) return;
    n_used_[kind] /= 2;
    n_again_[kind] /= 2;
  }
  void used_again(uint8_t kind) { n_again_[kind] += 1; }
  double log2_of(uint8_t kind) const {
    return std::log2((n_again_[kind] + 1) / (n_used_[kind] + 2));
  }

 private:
  static constexpr double kFade = 1 << 16;
  std::array<double, kKinds> n_used_{};
  std::array<double, kKinds> n_again_{};
};

// One tier: which blocks have a copy there, and which of them may go.
class SimTier {
 public:
  SimTier(const Trace& trace, int64_t n_blocks)
      : parents_(trace.parents),
        capacity_(n_blocks),
        keys_(n_blocks > 0 ? trace.parents.size() : 0),
        state_(n_blocks > 0 ? trace.parents.size() : 0),
        heap_(n_blocks > 0 ? trace.parents.size() : 0) {}

  bool exists() const { return capacity_ > 0; }
  int64_t capacity() const { return capacity_; }
  bool has(int32_t node) const { return exists() && at(node).is_here; }
  int64_t n_put() const { return n_put_; }
  int64_t n_evicted() const { return n_evicted_; }
  double& key(int32_t node) { return keys_[static_cast<size_t>(node)]; }

  // From here to unlock() nothing of the path goes.
  void lock(std::span<const int32_t> path, int32_t lock) {
    lock_ = lock;
    for (const int32_t node : path) {
      at(node).lock = lock;
      if (heap_.contains(node)) heap_.remove(node);
    }
  }
  void unlock(std::span<const int32_t> path, std::span<const uint8_t> priorities) {
    for (const int32_t node : path) {
      at(node).lock = -1;
      if (has(node) && at(node).n_children == 0) push(node, priorities);
    }
  }
  // False: full of what is locked.
  bool put(int32_t node, std::span<const uint8_t> priorities) {
    if (n_here_ == capacity_) {
      if (heap_.empty()) return false;
      evict(priorities);
    }
    ++n_here_;
    ++n_put_;
    at(node).is_here = true;
    if (const int32_t parent = parents_[static_cast<size_t>(node)]; parent >= 0) {
      if (++at(parent).n_children == 1 && heap_.contains(parent)) heap_.remove(parent);
    }
    return true;
  }

 private:
  struct State {
    int32_t n_children = 0;  // with a copy here
    int32_t lock = -1;
    bool is_here = false;
  };

  State& at(int32_t node) { return state_[static_cast<size_t>(node)]; }
  const State& at(int32_t node) const { return state_[static_cast<size_t>(node)]; }
  void push(int32_t node, std::span<const uint8_t> priorities) {
    heap_.push(node, priorities[static_cast<size_t>(node)], key(node));
  }
  void evict(std::span<const uint8_t> priorities) {
    const int32_t victim = heap_.top();
    heap_.remove(victim);
    at(victim).is_here = false;
    --n_here_;
    ++n_evicted_;
    const int32_t parent = parents_[static_cast<size_t>(victim)];
    if (parent < 0 || --at(parent).n_children > 0) return;
    if (at(parent).is_here && at(parent).lock != lock_) push(parent, priorities);
  }

  const std::vector<int32_t>& parents_;
  const int64_t capacity_;
  std::vector<double> keys_;  // by node; the lowest goes first
  std::vector<State> state_;  // by node
  VictimHeap heap_;           // here, without children here, not locked
  int32_t lock_ = -1;
  int64_t n_here_ = 0;
  int64_t n_put_ = 0;
  int64_t n_evicted_ = 0;
};

class Replay {
 public:
  Replay(const Trace& trace, const ReplayConfig& config, std::span<const int32_t> next)
      : trace_(trace),
        config_(config),
        next_(next),
        tiers_{SimTier(trace, config.device_blocks), SimTier(trace, config.host_blocks),
               SimTier(trace, config.ssd_blocks)},
        priorities_(trace.parents.size()),
        uses_(trace.parents.size()),
        budget_(std::max<int64_t>(1, daily_blocks() / 4),
                static_cast<double>(daily_blocks()) / kDayUs, 0) {
    CHECK_GT(config.device_blocks, 0);
    if (config.policy == ReplayPolicy::kBest) CHECK_EQ(next.size(), trace.nodes.size());
  }

  ReplayResult run() {
    double all = 0;
    for (size_t i = 0; i < trace_.requests.size(); ++i) {
      const TraceRequest& request = trace_.requests[i];
      all += work(0, request.prompt_len);
      serve(request, static_cast<int32_t>(i));
    }
    if (all > 0) result_.saved /= all;
    for (size_t tier = 0; tier < tiers_.size(); ++tier) {
      result_.n_put[tier] = tiers_[tier].n_put();
      result_.n_evicted[tier] = tiers_[tier].n_evicted();
    }
    return result_;
  }

 private:
  struct Use {
    double at = 0;  // of the last one: blocks put on the device by then
    int32_t n = 0;
    uint8_t kind = 0;
  };
  struct Hits {
    int32_t n_device = 0;  // of the path, the first ones
    int32_t n = 0;         // in any tier
  };

  int64_t daily_blocks() const {
    return config_.ssd_daily_blocks > 0 ? config_.ssd_daily_blocks : config_.ssd_blocks;
  }
  // Time of rows [begin, end) of a prompt, in rows at its front.
  double work(double begin, double end) const {
    if (config_.depth_tokens <= 0) return end - begin;
    return end - begin + (end * end - begin * begin) / 2 / config_.depth_tokens;
  }

  void serve(const TraceRequest& request, int32_t index) {
    std::span<const int32_t> path = trace_.path(request);
    result_.prompt_tokens += request.prompt_len;
    result_.n_visits += std::ssize(path);
    const Hits hits = look_up(path, trace_.n_lookups(request));
    if (std::ssize(path) > config_.device_blocks) {
      ++result_.n_paths_cut;
      path = path.first(static_cast<size_t>(config_.device_blocks));
    }
    for (SimTier& tier : tiers_) {
      if (tier.exists()) tier.lock(path, index);
    }
    note_priorities(path, request.priority);
    note_uses(request, path, hits);
    set_keys(request, path, index);
    // A copy is there before its block can go, and after its parent's.
    for (const int32_t node : path) {
      if (!tiers_[kDevice].has(node)) CHECK(tiers_[kDevice].put(node, priorities_));
    }
    if (tiers_[kHost].exists()) {
      for (const int32_t node : path) {
        if (!tiers_[kHost].has(node) && !tiers_[kHost].put(node, priorities_)) break;
      }
    }
    if (tiers_[kSsd].exists()) write_ssd(request, path, hits);
    for (SimTier& tier : tiers_) {
      if (tier.exists()) tier.unlock(path, priorities_);
    }
  }

  Hits look_up(std::span<const int32_t> path, int32_t n_lookups) {
    Hits hits;
    std::array<int64_t, 3> n{};
    for (; hits.n < n_lookups; ++hits.n) {
      const int32_t node = path[static_cast<size_t>(hits.n)];
      ++result_.n_lookups;
      size_t tier = kDevice;
      while (tier < tiers_.size() && !tiers_[tier].has(node)) ++tier;
      if (tier == tiers_.size()) break;
      ++n[tier];
    }
    hits.n_device = static_cast<int32_t>(n[kDevice]);
    for (size_t tier = 0; tier < n.size(); ++tier) {
      result_.hit_tokens[tier] += n[tier] * trace_.block_size;
    }
    result_.saved += work(0, static_cast<double>(hits.n) * trace_.block_size);
    return hits;
  }

  // What several share has the highest of theirs. Of what had left, only the new one's counts.
  void note_priorities(std::span<const int32_t> path, int32_t priority) {
    for (const int32_t node : path) {
      uint8_t& own = priorities_[static_cast<size_t>(node)];
      const bool is_here =
          tiers_[kDevice].has(node) || tiers_[kHost].has(node) || tiers_[kSsd].has(node);
      own =
          is_here ? std::max(own, static_cast<uint8_t>(priority)) : static_cast<uint8_t>(priority);
    }
  }

  void note_uses(const TraceRequest& request, std::span<const int32_t> path, const Hits& hits) {
    if (config_.policy != ReplayPolicy::kScore) return;
    const int32_t n_lookups = trace_.n_lookups(request);
    const int share = hits.n * 10 < n_lookups ? 0 : hits.n * 2 < n_lookups ? 1 : 2;
    const int length = request.prompt_len < 1024 ? 0 : request.prompt_len < 8192 ? 1 : 2;
    const auto now = static_cast<double>(tiers_[kDevice].n_put());
    // What left longer ago is forgotten: a real cache remembers only so many keys.
    int64_t n_all = 0;
    for (const SimTier& tier : tiers_) n_all += tier.capacity();
    const double horizon = 4 * static_cast<double>(n_all);
    for (size_t i = 0; i < path.size(); ++i) {
      Use& use = uses_[static_cast<size_t>(path[i])];
      const auto ordinal = static_cast<int32_t>(i);
      const int part = ordinal < hits.n ? 0 : ordinal < n_lookups ? 1 : 2;
      if (use.n > 0 && now - use.at > horizon) use.n = 0;
      if (use.n > 0) chance_.used_again(use.kind);
      use.kind = ReplayChance::kind_of(use.n + 1, part, share, length);
      chance_.used(use.kind);
      ++use.n;
      use.at = now;
    }
  }

  void set_keys(const TraceRequest& request, std::span<const int32_t> path, int32_t index) {
    for (SimTier& tier : tiers_) {
      if (!tier.exists()) continue;
      // Since when the tier has been filled so many times.
      const double turn = static_cast<double>(tier.n_put()) / static_cast<double>(tier.capacity()) /
                          config_.half_life;
      for (size_t i = 0; i < path.size(); ++i) {
        double& key = tier.key(path[i]);
        const Use& use = uses_[static_cast<size_t>(path[i])];
        switch (config_.policy) {
          case ReplayPolicy::kLru:
            key = index;
            break;
          case ReplayPolicy::kBest: {
            const int32_t next = next_[request.first + i];
            key = -static_cast<double>(next);
            break;
          }
          case ReplayPolicy::kScore:
            key = chance_.log2_of(use.kind) + turn + std::log2(worth(i));
            break;
        }
      }
    }
  }
  // Time that a block of this place saves, in that of the first; all have the same bytes.
  double worth(size_t ordinal) const {
    if (config_.depth_tokens <= 0) return 1;
    return 1 + static_cast<double>(ordinal) * trace_.block_size / config_.depth_tokens;
  }

  void write_ssd(const TraceRequest& request, std::span<const int32_t> path, const Hits& hits) {
    for (size_t i = 0; i < path.size(); ++i) {
      const auto ordinal = static_cast<int32_t>(i);
      // What came up from below was not computed, and the device has not served it yet.
      if (ordinal >= hits.n_device && ordinal < hits.n) continue;
      if (tiers_[kSsd].has(path[i])) continue;
      if (!budget_.try_take(1, request.arrival_us)) {
        ++result_.ssd_blocks_skipped;
      } else if (!tiers_[kSsd].put(path[i], priorities_)) {
        break;
      }
    }
  }

  const Trace& trace_;
  const ReplayConfig config_;
  const std::span<const int32_t> next_;
  std::array<SimTier, 3> tiers_;
  std::vector<uint8_t> priorities_;  // by node
  std::vector<Use> uses_;            // by node
  ReplayChance chance_;
  TokenBucket budget_;  // of the SSD, in blocks
  ReplayResult result_;
};

}  // namespace

std::vector<int32_t> next_lookups(const Trace& trace) {
  std::vector<int32_t> next(trace.nodes.size(), kNever);
  std::vector<int32_t> of_node(trace.parents.size(), kNever);
  for (size_t i = trace.requests.size(); i-- > 0;) {
    const TraceRequest& request = trace.requests[i];
    const std::span<const int32_t> path = trace.path(request);
    const int32_t n_lookups = trace.n_lookups(request);
    for (size_t k = 0; k < path.size(); ++k) {
      int32_t& node = of_node[static_cast<size_t>(path[k])];
      next[request.first + k] = node;
      if (static_cast<int32_t>(k) < n_lookups) node = static_cast<int32_t>(i);
    }
  }
  return next;
}

TraceFacts facts_of(const Trace& trace) {
  TraceFacts facts;
  facts.n_requests = std::ssize(trace.requests);
  facts.n_blocks = trace.n_nodes();
  if (!trace.requests.empty()) {
    facts.span_us = trace.requests.back().arrival_us - trace.requests.front().arrival_us;
  }
  std::vector<uint8_t> seen(trace.parents.size());  // 1: it came to be, 2: it was looked up then
  for (const TraceRequest& request : trace.requests) {
    facts.prompt_tokens += request.prompt_len;
    facts.output_tokens += request.output_len;
    const std::span<const int32_t> path = trace.path(request);
    const auto n_lookups = static_cast<size_t>(trace.n_lookups(request));
    for (size_t k = 0; k < n_lookups && seen[static_cast<size_t>(path[k])] > 0; ++k) {
      uint8_t& node = seen[static_cast<size_t>(path[k])];
      facts.n_blocks_reused += node == 1 ? 1 : 0;
      node = 2;
      facts.hit_tokens += trace.block_size;
    }
    for (const int32_t node : path) {
      uint8_t& state = seen[static_cast<size_t>(node)];
      state = std::max(state, uint8_t{1});
    }
  }
  return facts;
}

ReplayResult replay(const Trace& trace, const ReplayConfig& config, std::span<const int32_t> next) {
  return Replay(trace, config, next).run();
}

}  // namespace pagoda::cache
