#include "server/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

using Values = std::span<const std::string>;

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
      return "Logging and metrics";
  }
  return "";
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

std::string_view version() { return PAGODA_VERSION; }

}  // namespace pagoda
