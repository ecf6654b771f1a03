#include "server/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

using Values = std::span<const std::string>;
using Setter = std::function<absl::Status(Values, ServeOptions&)>;

struct Unit {
  std::string_view name;
  double factor;
};

// A decimal number and one of the units after it.
absl::StatusOr<double> parse_with_unit(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error == std::errc() && std::isfinite(number) && number >= 0) {
    const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
    for (const Unit& unit : units) {
      if (rest == unit.name) return number * unit.factor;
    }
  }
  return base::invalid_argument("no such value");
}

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

absl::Status set_host(Values values, ServeOptions& options) {
  if (values.back().empty()) return base::invalid_argument("takes an address such as 127.0.0.1");
  options.host = values.back();
  return absl::OkStatus();
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

void add_listener_options(std::vector<Option>& table) {
  using O = ServeOptions;
  const auto group = OptionGroup::kListener;
  table.push_back({"host", group, "ADDRESS", "127.0.0.1",
                   "Address to listen on; 0.0.0.0 is every address of this machine", false,
                   set_host});
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
  table.push_back(
      {"step-timeout", group, "TIME", "60s",
       "A step that runs longer is logged and counted, and /live says 503 until it ends", false,
       duration(&O::step_timeout)});
  table.push_back({"seed", group, "N", "0",
                   "Seeds the requests that bring no seed; 0 takes the system's entropy", false,
                   number(&O::seed, 0, std::numeric_limits<int64_t>::max())});
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
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view option_group_name(OptionGroup group) {
  switch (group) {
    case OptionGroup::kModel:
      return "Model";
    case OptionGroup::kListener:
      return "Listener";
    case OptionGroup::kEngine:
      return "Engine";
    case OptionGroup::kKvCache:
      return "KV cache";
    case OptionGroup::kLogging:
      return "Logging";
  }
  return "";
}

std::vector<Option> option_table() {
  std::vector<Option> table;
  table.push_back({"served-model-name", OptionGroup::kModel, "NAME", "MODEL as typed",
                   "Name that requests call the model by; may be given several times", true,
                   set_names});
  add_listener_options(table);
  add_engine_options(table);
  add_kv_options(table);
  table.push_back(
      {"log-level", OptionGroup::kLogging, "LEVEL", "info",
       "trace, debug, info, warn, error or off", false,
       choice(&ServeOptions::log_level, {"trace", "debug", "info", "warn", "error", "off"})});
  table.push_back({"log-format", OptionGroup::kLogging, "FORMAT", "text",
                   "text, or json: one object a line", false,
                   choice(&ServeOptions::log_format, {"text", "json"})});
  table.push_back({"log-prompts", OptionGroup::kLogging, "", "off",
                   "Log the beginning of each prompt", false, flag(&ServeOptions::log_prompts)});
  table.push_back({"metrics-vllm-names", OptionGroup::kLogging, "", "off",
                   "Show metrics under the names that vLLM gives them as well", false,
                   flag(&ServeOptions::metrics_vllm_names)});
  return table;
}

std::string environment_name(const Option& option) {
  std::string name = "PAGODA_";
  for (const char c : option.name) {
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return name;
}

absl::Status apply_option(const Option& option, Values values, std::string_view shown_name,
                          ServeOptions& options) {
  const absl::Status status = option.set(values, options);
  if (status.ok()) return status;
  return base::invalid_argument("{} {}", shown_name, base::message_of(status));
}

absl::Status apply_environment(std::span<const Option> table, const GetEnvironment& environment,
                               ServeOptions& options) {
  for (const Option& option : table) {
    const std::string name = environment_name(option);
    const char* text = environment(name);
    if (text == nullptr || *text == '\0') continue;
    std::vector<std::string> values;
    std::string_view rest = text;
    // Several values are separated by commas.
    for (size_t comma = 0; option.repeatable && (comma = rest.find(',')) != rest.npos;) {
      values.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(comma + 1);
    }
    values.emplace_back(rest);
    RETURN_IF_ERROR(apply_option(option, values, name, options));
  }
  return absl::OkStatus();
}

std::optional<std::string> nearest_name(std::string_view typed,
                                        std::span<const std::string> names) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(typed, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

absl::StatusOr<int64_t> parse_size(std::string_view text) {
  static constexpr Unit kUnits[] = {
      {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  ASSIGN_OR_RETURN(const double bytes, parse_with_unit(text, kUnits));
  if (bytes > 0x1p53) return base::invalid_argument("no such value");
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<std::chrono::milliseconds> parse_duration(std::string_view text) {
  static constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1e3}, {"min", 60e3}, {"h", 3600e3}};
  ASSIGN_OR_RETURN(const double ms, parse_with_unit(text, kUnits));
  constexpr double kMostMs = 1e12;  // some thirty years
  if (ms < 1 || ms > kMostMs) return base::invalid_argument("no such value");
  return std::chrono::milliseconds(static_cast<int64_t>(ms));
}

std::string model_path(const std::string& model, const GetEnvironment& environment) {
  if (model != "demo") return model;
  std::string home;
  if (const char* pagoda_home = environment("PAGODA_HOME");
      pagoda_home != nullptr && *pagoda_home != '\0') {
    home = pagoda_home;
  } else {
    const char* user_home = environment("HOME");
    home = fmt::format("{}/.cache/pagoda", user_home == nullptr ? "" : user_home);
  }
  return home + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::string_view version() { return PAGODA_VERSION; }

}  // namespace pagoda
