// A trace through the cache alone, at full speed: what would have been hits with tiers of other
// sizes and with other rules of who goes first. Only which blocks lie where is simulated, on the
// trace's own block numbers.
//
// It goes by the real cache's rules. A request looks its prompt up, block by block from the front,
// in the highest tier that has each, up to the first block that is nowhere; all its blocks then lie
// on the device. Blocks are copied to the host tier when they are committed (parents first), and to
// the SSD within its day's budget when they are computed, or when the device serves them again.
// What comes up keeps its copy below. A victim has no child with a copy in its tier; a lower
// retention priority goes first, then the policy says. The SSD is simpler than the real one, which
// lets go of whole segments.
//
// Requests are served one after the other, each in no time: what runs together, and what that needs
// of the device, is left out.
#pragma once

#include <array>
#include <cstdint>

#include "cache/trace.h"

namespace pagoda::cache {

enum class ReplayPolicy : uint8_t {
  kLru,    // least recently used first, a path's end before its beginning
  kScore,  // chance of another use × time saved ÷ bytes: see ReplayChance
  kBest,   // next used last first: knows the future, so it is a bound and no policy
};

struct ReplayConfig {
  ReplayPolicy policy = ReplayPolicy::kLru;
  // Blocks. The device has at least one; a path that is longer is kept up to that.
  int64_t device_blocks = 1;
  int64_t host_blocks = 0;
  int64_t ssd_blocks = 0;
  int64_t ssd_daily_blocks = 0;  // 0: its size once a day
  // kScore: in how many turnovers of a tier (as many blocks put in as it holds) a chance becomes
  // half.
  double half_life = 1;
  // Tokens before a row at which attention takes as long as the rest of it: with that many a block
  // saves twice the time of a first one. 0: all blocks save the same.
  double depth_tokens = 16'384;
};

struct ReplayResult {
  int64_t n_lookups = 0;                // blocks asked for, up to the first that is nowhere
  int64_t n_visits = 0;                 // blocks of all paths
  int64_t prompt_tokens = 0;            // of all requests
  std::array<int64_t, 3> hit_tokens{};  // by TierKind
  std::array<int64_t, 3> n_evicted{};   // blocks, by TierKind
  std::array<int64_t, 3> n_put{};       // blocks, by TierKind
  int64_t ssd_blocks_skipped = 0;       // for want of budget
  int64_t n_paths_cut = 0;              // longer than the device
  double saved = 0;                     // of the time for all prompts, by depth_tokens: 0 … 1
};

// What a trace asks of any cache.
struct TraceFacts {
  int64_t n_requests = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t span_us = 0;          // first to last arrival
  int64_t n_blocks = 0;         // that differ: the working set
  int64_t n_blocks_reused = 0;  // of those, looked up after they came to be
  int64_t hit_tokens = 0;       // with room for all
};
TraceFacts facts_of(const Trace& trace);

// Of each place in Trace::nodes the request that next looks its block up; INT32_MAX: none.
std::vector<int32_t> next_lookups(const Trace& trace);

// `next`: for kBest only, of next_lookups.
ReplayResult replay(const Trace& trace, const ReplayConfig& config,
                    std::span<const int32_t> next = {});

}  // namespace pagoda::cache
