// The options of `pagoda serve`, in one table that the command line, the environment, the
// configuration file and the help text are made from.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda {

struct ServeOptions {
  std::string model;   // as typed
  std::string config;  // the configuration file; empty: none
  std::vector<std::string> served_model_names;
  std::string chat_template;               // a file, or the text itself; empty: the model's own
  std::string generation_config = "auto";  // auto, none, or a file

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  int64_t max_body_bytes = 32 << 20;
  int32_t max_json_depth = 128;
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds slow_reader_timeout{30'000};
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::vector<std::string> cors_allow_origins;  // "*" or scheme://host[:port]
  std::string admin_host = "127.0.0.1";
  int32_t admin_port = -1;  // -1: no admin listener
  std::string admin_key;    // empty: none is asked for

  std::string device = "auto";
  std::string kernels = "auto";
  int32_t threads = 0;        // 0: as many as the process may use
  int32_t max_model_len = 0;  // 0: the model's
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t max_queue = 256;
  uint64_t seed = 0;                               // 0: from the system's entropy
  std::chrono::milliseconds step_timeout{60'000};  // a longer step is reported

  int64_t kv_cache_memory_bytes = 0;  // 0: by free memory
  int32_t block_size = 16;
  bool enable_prefix_caching = true;
  int64_t kv_host_size = 0;        // 0: no host tier
  int32_t kv_host_numa_node = -1;  // -1: any
  std::string kv_ssd_path;         // a folder; empty: no SSD tier
  int64_t kv_ssd_size = int64_t{8} << 30;
  std::string kv_ssd_write = "auto";
  int64_t kv_ssd_daily_bytes = 0;  // 0: the size
  int64_t kv_ssd_read_limit = 0;   // bytes a second; 0: none
  std::string kv_restore_policy = "auto";
  std::string trace_out;     // a file; empty: none
  double cost_per_hour = 0;  // of the machine, in any currency; 0: not told
  std::chrono::milliseconds session_idle_host{60'000};
  std::chrono::milliseconds session_idle_ssd{600'000};

  std::string log_level = "info";
  std::string log_format = "text";
  bool log_prompts = false;
  bool metrics_vllm_names = false;

  bool operator==(const ServeOptions&) const = default;
};

enum class OptionGroup : uint8_t { kModel, kListener, kEngine, kKvCache, kLogging };
std::string_view option_group_name(OptionGroup group);

struct Option {
  // "max-model-len": the flag --NAME, the file's key, and PAGODA_MAX_MODEL_LEN.
  std::string name;
  OptionGroup group = OptionGroup::kEngine;
  std::string value_name;    // what the help calls the value; empty: a switch, true or false
  std::string default_text;  // for people
  std::string help;
  bool repeatable = false;
  // Never empty; of several values only a repeatable option takes more than the last. The error
  // completes the sentence "--NAME …".
  std::function<absl::Status(std::span<const std::string> values, ServeOptions& options)> set;
};

// Filled in option_table.cc.
std::vector<Option> option_table();

std::string environment_name(const Option& option);
using GetEnvironment = std::function<const char*(const std::string& name)>;

// Sets what the environment has. kInvalidArgument names the variable.
absl::Status apply_environment(std::span<const Option> table, const GetEnvironment& environment,
                               ServeOptions& options);
// Sets one option, as typed. kInvalidArgument names the flag and what would be right.
absl::Status apply_option(const Option& option, std::span<const std::string> values,
                          std::string_view shown_name, ServeOptions& options);

// "Is it --port?": of the names the one with the fewest edits, if they are few enough for a slip.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

// "4096", "512MiB", "1.5GiB", "2GB"; at least 0.
absl::StatusOr<int64_t> parse_size(std::string_view text);
// "500ms", "30s", "10min", "1h"; more than 0.
absl::StatusOr<std::chrono::milliseconds> parse_duration(std::string_view text);

std::string_view version();

}  // namespace pagoda
