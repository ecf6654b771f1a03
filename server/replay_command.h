// `pagoda replay TRACE`: what a cache of other sizes, or with another rule of who goes first, would
// have found of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cache/replay.h"
#include "server/command_line.h"

namespace pagoda {

// One row of the table: the same sizes under each policy.
struct ReplayRow {
  int64_t device_blocks = 0;
  int64_t host_blocks = 0;
  int64_t ssd_blocks = 0;
  cache::ReplayResult lru;
  cache::ReplayResult score;
  cache::ReplayResult best;
};

struct ReplayReport {
  std::string path;
  int32_t block_size = 0;
  int64_t block_bytes = 0;  // 0: unknown
  bool is_cut = false;      // the last line had no end
  cache::TraceFacts facts;
  std::vector<ReplayRow> rows;
  double seconds = 0;  // of processor time, for all runs
};

// Without sizes: rows for parts of the working set on the device alone.
absl::StatusOr<ReplayReport> replay_trace(const cache::Trace& trace, const ReplayCommand& command);

std::string replay_text(const ReplayReport& report);
std::string replay_json(const ReplayReport& report);

absl::Status run_replay(const CommandLine& line);

}  // namespace pagoda
