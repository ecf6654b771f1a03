// What the next step runs: a pure function of the sequences, the budgets and the cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "server/engine/sequence.h"

namespace pagoda::engine {

struct Budgets {
  int32_t max_tokens = 512;  // rows of a step
  int32_t max_seqs = 64;     // sequences that hold a slot
};

// Rows [start, start + count) of a sequence.
struct BatchItem {
  SeqId id;
  int32_t start = 0;
  int32_t count = 0;
  bool is_new = false;  // waited until now: takes a lease and a slot first
};

struct Reject {
  SeqId id;
  std::string why;
};

struct BatchPlan {
  std::vector<BatchItem> items;
  std::vector<SeqId> restores;  // waiting sequences whose KV may start to come up
  std::vector<SeqId> returns;   // waiting sequences that give back what has come up for them
  std::vector<SeqId> preempts;  // give their blocks back before the items run
  std::vector<Reject> rejects;  // can never run
  bool empty() const {
    return items.empty() && restores.empty() && returns.empty() && preempts.empty() &&
           rejects.empty();
  }
};

// Changes nothing: the engine carries the plan out.
//
// One token budget is filled in this order: decodes, least recently planned first; chunks of
// prompts that are under way; new ones, by priority, then by the tenant with the fewest running,
// then by arrival. A sequence is let in only when the blocks of its whole prompt and one more are
// free beyond what those under way still need, so that prompts don't push each other out. When
// decodes need more blocks than there are, the lowest priority gives way, of those the latest
// arrival; who computes what others wait for has their priority. With anything to run, the plan is
// not empty.
//
// Where there are tiers below, the KV of the next few that must wait for a slot or for rows comes
// up meanwhile, while blocks are plenty. Whoever runs or may run goes before: then it is given
// back.
class Scheduler {
 public:
  BatchPlan plan(std::span<Sequence* const> waiting, std::span<Sequence* const> running,
                 const Budgets& budgets, const cache::KvCache& cache) const;
};

}  // namespace pagoda::engine
