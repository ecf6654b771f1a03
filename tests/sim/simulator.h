// One seeded life of an engine: the real scheduler and cache under a fake clock, a hash for a
// model, and random arrivals, lengths, aborts, salts and pool sizes. Often with the real tiers
// below it, over a disk that fails, fills up, rots and loses power, and with restarts. The cache is
// checked after each step and every token against the answer that the request gets alone.
#pragma once

#include <cstdint>
#include <string>

namespace pagoda::sim {

struct SimResult {
  int64_t n_requests = 0;
  int64_t n_finished = 0;
  int64_t n_aborted = 0;
  int64_t n_preemptions = 0;
  int64_t n_hit_tokens = 0;
  int64_t n_steps = 0;
  int64_t n_restarts = 0;
  int64_t n_host_tokens = 0;  // that came up from the host tier
  int64_t n_ssd_tokens = 0;
  std::string failure;  // empty: the run was right
};

// The same seed gives the same run. Broken invariants inside the engine end the process with a
// message; wrong answers come back as `failure`.
SimResult run_seed(uint64_t seed, bool verbose);

}  // namespace pagoda::sim
