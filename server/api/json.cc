#include "server/api/json.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

using nlohmann::json;

constexpr size_t kMaxUnknownNames = 16;
constexpr size_t kMaxWarnedNames = 1000;
constexpr size_t kMaxShownBytes = 60;

struct TooDeep {};

// Cuts at a character's border.
std::string shorten(std::string text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

}  // namespace

absl::StatusOr<JsonBody> parse_object(std::string_view body,
                                      std::span<const std::string_view> known, int32_t max_depth) {
  JsonBody result;
  std::string field;
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= max_depth) {
      throw TooDeep();
    }
    if (event != Event::key || depth != 1) return true;
    field = value.get_ref<const std::string&>();
    if (std::ranges::find(known, field) != known.end()) return true;
    if (result.unknown.size() < kMaxUnknownNames) result.unknown.push_back(shorten(field, 64));
    return false;
  };
  try {
    result.object = json::parse(body, on_event);
  } catch (const TooDeep&) {
    return base::invalid_argument("the body is nested deeper than {} levels (--max-json-depth)",
                                  max_depth);
  } catch (const json::out_of_range&) {
    return bad_field(shorten(field, 64), "holds a number that is out of range");
  } catch (const json::parse_error& error) {
    return base::invalid_argument("the body is not valid JSON in UTF-8: error at byte {}",
                                  error.byte);
  }
  if (!result.object.is_object()) {
    return base::invalid_argument("the body must be a JSON object");
  }
  return result;
}

std::string shown(const json& value) {
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  return shorten(value.dump(-1, ' ', false, json::error_handler_t::replace), kMaxShownBytes);
}

bool as_int64(const json& value, int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    out = static_cast<int64_t>(number);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  // Doubles hold every integer up to 2^53.
  const auto number = value.get<double>();
  if (!(std::abs(number) <= 9007199254740992.0) || std::trunc(number) != number) return false;
  out = static_cast<int64_t>(number);
  return true;
}

absl::StatusOr<std::vector<int32_t>> read_token_ids(std::string_view field, const json& list,
                                                    int32_t n_vocab) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json& item : list) {
    int64_t id = 0;
    if (!as_int64(item, id) || id < 0 || id >= n_vocab) {
      return bad_field(field, "holds {}, which is not a token id from 0 to {}", shown(item),
                       n_vocab - 1);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

const json* Fields::find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status Fields::read(std::string_view name, bool& out) const {
  const json* value = find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return bad_field(name, "must be true or false, not {}", shown(*value));
  out = value->get<bool>();
  return absl::OkStatus();
}

absl::Status Fields::read(std::string_view name, std::string& out, size_t max_bytes) const {
  const json* value = find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return bad_field(name, "must be a string, not {}", shown(*value));
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    return bad_field(name, "has {} bytes; at most {} are taken", text.size(), max_bytes);
  }
  out = text;
  return absl::OkStatus();
}

absl::Status Fields::read(std::string_view name, int64_t& out, int64_t low, int64_t high) const {
  const json* value = find(name);
  if (value == nullptr) return absl::OkStatus();
  int64_t number = 0;
  if (as_int64(*value, number) && number >= low && number <= high) {
    out = number;
    return absl::OkStatus();
  }
  if (high == std::numeric_limits<int64_t>::max()) {
    if (low == std::numeric_limits<int64_t>::min()) {
      return bad_field(name, "must be a 64-bit integer, not {}", shown(*value));
    }
    return bad_field(name, "must be an integer of at least {}, not {}", low, shown(*value));
  }
  return bad_field(name, "must be an integer from {} to {}, not {}", low, high, shown(*value));
}

absl::Status Fields::read(std::string_view name, float& out, double low, double high) const {
  const json* value = find(name);
  if (value == nullptr) return absl::OkStatus();
  // The comparison is written so that NaN fails it.
  if (value->is_number() && value->get<double>() >= low && value->get<double>() <= high) {
    out = static_cast<float>(value->get<double>());
    return absl::OkStatus();
  }
  return bad_field(name, "must be a number from {} to {}, not {}", low, high, shown(*value));
}

void FieldWarnings::warn(std::span<const std::string> names) {
  for (const std::string& name : names) {
    {
      std::lock_guard lock(mutex_);
      if (seen_.size() >= kMaxWarnedNames || !seen_.insert(name).second) continue;
    }
    spdlog::warn("a request has the field {}, which is not known and has no effect",
                 shown(nlohmann::json(name)));
  }
}

}  // namespace pagoda::api
