// What this process may use of its machine, and how large the KV pool should be. The readers take
// the text of a file from a function, so that tests can give them any machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace pagoda {

// The content of a small file of /proc or /sys; none if it cannot be read. Such files have no size,
// which is why base::FileSystem does not read them.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_system_file(const std::string& path);

// Bytes that can be taken without pushing the machine or its control groups (v1 or v2, whichever
// has a limit, at every level above the process) into want: free memory, and what is left of each
// limit, with file pages that can be dropped counted as free. -1 when nothing is known.
int64_t available_memory(const ReadFile& read);

// Processors: those of the affinity mask, no more than the control groups' quota rounded up.
int32_t usable_processors(const ReadFile& read, int32_t n_affinity);
int32_t affinity_count();

struct PoolRequest {
  int64_t flag_bytes = 0;       // --kv-cache-memory-bytes; 0: not given
  int64_t available_bytes = 0;  // negative: not known
  int64_t block_bytes = 0;
  int64_t block_tokens = 0;  // tokens of one sequence that a block of every group holds
  int32_t n_groups = 1;
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
};
// Blocks: what the flag's bytes hold, else a quarter of the available memory, but no more than
// max_num_seqs sequences of max_model_len tokens can fill.
int64_t pool_blocks(const PoolRequest& request);

}  // namespace pagoda
