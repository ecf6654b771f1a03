// The table of options: a new option is one entry here and one field of ServeOptions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/check.h"
#include "server/config.h"
#include "server/http/cors.h"

namespace pagoda {
namespace {

using Values = std::span<const std::string>;
using Setter = std::function<absl::Status(Values, ServeOptions&)>;

template <typename T>
Setter number(T ServeOptions::*field, int64_t low, int64_t high) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    const std::string& text = values.back();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
      return base::invalid_argument("takes a whole number from {} to {}, not \"{}\"", low, high,
                                    text);
    }
    options.*field = static_cast<T>(value);
    return absl::OkStatus();
  };
}

Setter size(int64_t ServeOptions::*field, int64_t low) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    const auto bytes = parse_size(values.back());
    if (!bytes.ok() || *bytes < low) {
      return base::invalid_argument(
          "takes a size of at least {} bytes such as 512MiB, 4GiB or 1000000, not \"{}\"", low,
          values.back());
    }
    options.*field = *bytes;
    return absl::OkStatus();
  };
}

Setter duration(std::chrono::milliseconds ServeOptions::*field) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    const auto time = parse_duration(values.back());
    if (!time.ok()) {
      return base::invalid_argument("takes a time such as 500ms, 30s or 10min, not \"{}\"",
                                    values.back());
    }
    options.*field = *time;
    return absl::OkStatus();
  };
}

Setter choice(std::string ServeOptions::*field, std::vector<std::string> choices) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    if (std::ranges::find(choices, values.back()) == choices.end()) {
      return base::invalid_argument("takes one of {}, not \"{}\"", fmt::join(choices, ", "),
                                    values.back());
    }
    options.*field = values.back();
    return absl::OkStatus();
  };
}

Setter flag(bool ServeOptions::*field) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    const std::string& text = values.back();
    const bool yes = text == "true" || text == "1" || text == "on";
    if (!yes && text != "false" && text != "0" && text != "off") {
      return base::invalid_argument("takes true or false, not \"{}\"", text);
    }
    options.*field = yes;
    return absl::OkStatus();
  };
}

absl::Status set_names(Values values, ServeOptions& options) {
  options.served_model_names.assign(values.begin(), values.end());
  for (const std::string& name : values) {
    if (name.empty()) return base::invalid_argument("takes a name that is not empty");
  }
  return absl::OkStatus();
}

absl::Status set_block_size(Values values, ServeOptions& options) {
  int32_t value = 0;
  const std::string& text = values.back();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 16 || value > 4096 ||
      value % 16 != 0) {
    return base::invalid_argument("takes a multiple of 16 up to 4096, not \"{}\"", text);
  }
  options.block_size = value;
  return absl::OkStatus();
}

Setter price(double ServeOptions::*field) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    double value = 0;
    const std::string& text = values.back();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (!is_number || !(value >= 0 && value <= 1e9)) {
      return base::invalid_argument("takes an amount such as 2.5, not \"{}\"", text);
    }
    options.*field = value;
    return absl::OkStatus();
  };
}

Setter text(std::string ServeOptions::*field, std::string what) {
  return [=](Values values, ServeOptions& options) -> absl::Status {
    if (values.back().empty()) return base::invalid_argument("takes {}", what);
    options.*field = values.back();
    return absl::OkStatus();
  };
}

absl::Status set_origins(Values values, ServeOptions& options) {
  for (const std::string& value : values) {
    RETURN_IF_ERROR(http::check_cors_origin(value));
  }
  options.cors_allow_origins.assign(values.begin(), values.end());
  return absl::OkStatus();
}

void add_model_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kModel;
  table.push_back({"config", group, "FILE", "none",
                   "YAML file with any of these options as keys; see configs/", false,
                   text(&O::config, "the path of a YAML file")});
  table.push_back({"served-model-name", group, "NAME", "MODEL as typed",
                   "Name that requests call the model by; may be given several times", true,
                   set_names});
  table.push_back({"chat-template", group, "TEMPLATE", "the model's",
                   "Chat template in place of the model's own: a file, or the text itself", false,
                   text(&O::chat_template, "a file or the text of a chat template")});
  table.push_back({"generation-config", group, "auto|none|FILE", "auto",
                   "Sampling defaults of requests: the model's own (auto), none, or those of a "
                   "generation_config.json",
                   false, text(&O::generation_config, "auto, none or a file")});
}

void add_listener_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kListener;
  table.push_back({"host", group, "ADDRESS", "127.0.0.1",
                   "Address to listen on; 0.0.0.0 is every address of this machine", false,
                   text(&O::host, "an address such as 127.0.0.1")});
  table.push_back({"port", group, "PORT", "8000", "Port to listen on; 0 takes a free one", false,
                   number(&O::port, 0, 65535)});
  table.push_back({"max-body-bytes", group, "SIZE", "32MiB",
                   "Largest request body; a larger one gets status 413", false,
                   size(&O::max_body_bytes, 1)});
  table.push_back({"max-json-depth", group, "N", "128",
                   "Deepest nesting of a request's JSON; a deeper one gets status 400", false,
                   number(&O::max_json_depth, 1, 10'000)});
  table.push_back({"request-timeout", group, "TIME", "10min",
                   "Longest time for a whole request, waiting included", false,
                   duration(&O::request_timeout)});
  table.push_back({"slow-reader-timeout", group, "TIME", "30s",
                   "A client that takes no byte of its answer for this long is dropped", false,
                   duration(&O::slow_reader_timeout)});
  table.push_back({"shutdown-timeout", group, "TIME", "30s",
                   "After SIGTERM, time for accepted requests to end", false,
                   duration(&O::shutdown_timeout)});
  table.push_back({"cors-allow-origins", group, "ORIGIN", "none",
                   "Origin whose web pages may call this server, or * for all; may be given "
                   "several times",
                   true, set_origins});
  table.push_back({"admin-host", group, "ADDRESS", "127.0.0.1",
                   "Address of the listener for operators; another than this machine's own needs "
                   "--admin-key",
                   false, text(&O::admin_host, "an address such as 127.0.0.1")});
  table.push_back({"admin-port", group, "PORT", "none",
                   "Port of the listener for operators (/v1/kv/sessions, /v1/kv/explain, ...); 0 "
                   "takes a free one",
                   false, number(&O::admin_port, 0, 65535)});
  table.push_back({"admin-key", group, "KEY", "none",
                   "Key that operators must send, as Authorization: Bearer KEY", false,
                   text(&O::admin_key, "a key that is not empty")});
}

void add_engine_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kEngine;
  table.push_back({"device", group, "DEVICE", "auto", "Where the model runs: auto or cpu", false,
                   choice(&O::device, {"auto", "cpu"})});
  table.push_back({"threads", group, "N", "all that may be used", "Compute threads", false,
                   number(&O::threads, 1, 1024)});
  table.push_back({"max-model-len", group, "N", "the model's",
                   "Most tokens of prompt and answer together", false,
                   number(&O::max_model_len, 2, std::numeric_limits<int32_t>::max())});
  table.push_back({"max-num-seqs", group, "N", "64", "Answers that run at the same time", false,
                   number(&O::max_num_seqs, 1, 4096)});
  table.push_back({"max-num-batched-tokens", group, "N", "512",
                   "Tokens that one step computes at most", false,
                   number(&O::max_num_batched_tokens, 1, 65536)});
  table.push_back({"max-queue", group, "N", "256", "Answers that wait to run; more get status 429",
                   false, number(&O::max_queue, 1, 1'000'000)});
  table.push_back({"seed", group, "N", "0",
                   "Seeds the requests that bring no seed; 0 takes the system's entropy", false,
                   number(&O::seed, 0, std::numeric_limits<int64_t>::max())});
  table.push_back(
      {"step-timeout", group, "TIME", "60s",
       "A step that runs longer is logged and counted, and /live says 503 until it ends", false,
       duration(&O::step_timeout)});
  table.push_back(
      {"kernels", group, "SET", "auto",
       "Kernels of the CPU: auto (the fastest that this machine has), portable, avx2 or "
       "avx512; the others are for tests",
       false, choice(&O::kernels, {"auto", "portable", "avx2", "avx512"})});
}

void add_kv_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kKvCache;
  table.push_back({"kv-cache-memory-bytes", group, "SIZE", "a quarter of the free memory",
                   "Memory of the KV pool; by default no more than --max-num-seqs answers of full "
                   "length can use",
                   false, size(&O::kv_cache_memory_bytes, 1)});
  table.push_back({"block-size", group, "N", "16", "Tokens of a KV block, a multiple of 16", false,
                   set_block_size});
  table.push_back({"enable-prefix-caching", group, "", "on",
                   "Keep the KV of prompts and answers for requests that begin the same", false,
                   flag(&O::enable_prefix_caching)});
  table.push_back({"kv-host-size", group, "SIZE", "0",
                   "Memory of the host tier, to which KV moves from the device. On a CPU the pool "
                   "lies in the same memory, so that a larger pool does more",
                   false, size(&O::kv_host_size, 0)});
  table.push_back({"kv-host-numa-node", group, "N", "any node",
                   "NUMA node whose memory the host tier takes, a CXL node for example", false,
                   number(&O::kv_host_numa_node, 0, 1023)});
  table.push_back({"kv-ssd-path", group, "FOLDER", "none",
                   "Folder of the SSD tier, where KV outlives a restart; it holds what users wrote",
                   false, text(&O::kv_ssd_path, "the path of a folder")});
  table.push_back({"kv-ssd-size", group, "SIZE", "8GiB", "What the SSD tier may fill of its disk",
                   false, size(&O::kv_ssd_size, 1)});
  table.push_back({"kv-ssd-write", group, "WHEN", "auto",
                   "When KV is written to the SSD: eager (at once), reuse (when it is used again), "
                   "evict (before it leaves memory), or auto (eager while the day's bytes last, "
                   "then reuse)",
                   false, choice(&O::kv_ssd_write, {"auto", "eager", "reuse", "evict"})});
  table.push_back({"kv-ssd-daily-bytes", group, "SIZE", "as --kv-ssd-size",
                   "Bytes written to the SSD a day at most, since writing wears it out", false,
                   size(&O::kv_ssd_daily_bytes, 1)});
  table.push_back({"kv-ssd-read-limit", group, "SIZE", "none",
                   "Bytes read from the SSD a second at most", false,
                   size(&O::kv_ssd_read_limit, 1)});
  table.push_back({"kv-restore-policy", group, "POLICY", "auto",
                   "What lies in a lower tier is brought back (restore), computed again "
                   "(recompute), or what is measured to be faster, or both at once (auto)",
                   false, choice(&O::kv_restore_policy, {"auto", "restore", "recompute"})});
  table.push_back({"session-idle-host", group, "TIME", "1min",
                   "A session that is idle for so long moves to the host tier, if there is one",
                   false, duration(&O::session_idle_host)});
  table.push_back({"session-idle-ssd", group, "TIME", "10min",
                   "A session that is idle for so long moves to the SSD, if there is one", false,
                   duration(&O::session_idle_ssd)});
}

void add_logging_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kLogging;
  table.push_back({"log-level", group, "LEVEL", "info", "trace, debug, info, warn, error or off",
                   false,
                   choice(&O::log_level, {"trace", "debug", "info", "warn", "error", "off"})});
  table.push_back({"log-format", group, "FORMAT", "text",
                   "text for people, or json: one object a line", false,
                   choice(&O::log_format, {"text", "json"})});
  table.push_back({"log-prompts", group, "", "off",
                   "Write prompts and answers to the log; they may be private", false,
                   flag(&O::log_prompts)});
  table.push_back({"metrics-vllm-names", group, "", "off",
                   "Give /metrics vLLM's names as well, for boards and routers made for it", false,
                   flag(&O::metrics_vllm_names)});
  table.push_back(
      {"trace-out", group, "FILE", "none",
       "Append a line for each finished request: lengths, and digests of its blocks under "
       "a key that is nowhere kept, for `pagoda replay`; no text",
       false, text(&O::trace_out, "the path of a file")});
  table.push_back({"cost-per-hour", group, "AMOUNT", "none",
                   "What the machine costs an hour, in any currency: /metrics then tells the cost "
                   "of a thousand tokens, and what the KV cache has saved",
                   false, price(&O::cost_per_hour)});
}

}  // namespace

std::vector<Option> option_table() {
  std::vector<Option> table;
  add_model_options(table);
  add_listener_options(table);
  add_engine_options(table);
  add_kv_options(table);
  add_logging_options(table);
  return table;
}

}  // namespace pagoda
