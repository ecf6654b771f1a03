#include "server/api/json.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

constexpr size_t kMaxUnknownNames = 16;
constexpr size_t kMaxWarnedNames = 1000;
constexpr size_t kMaxShownBytes = 60;

// Cuts at a character's border.
std::string shorten(std::string text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// Builds a value while it is read, in time that grows with the text alone.
class BodyReader final : public nlohmann::json_sax<Json> {
 public:
  // known: the fields of the outermost object whose values are kept, the others are read past; null
  // keeps all. what: the name of the text in errors.
  BodyReader(const std::span<const std::string_view>* known, std::string_view what,
             int32_t max_depth)
      : known_(known), what_(what), max_depth_(max_depth) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(int64_t value) override { return add(Json(value)); }
  bool number_unsigned(uint64_t value) override { return add(Json(value)); }
  bool number_float(double value, const std::string&) override { return add(Json(value)); }
  bool string(std::string& value) override {
    return is_skipping_ ? add(Json()) : add(Json(std::move(value)));
  }
  // There is no such thing in text.
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override;
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override;

  // After a parse that succeeded.
  JsonBody take() { return std::move(body_); }
  // After one that did not.
  const absl::Status& status() const { return status_; }

 private:
  bool open(Json::value_t type);
  bool close();
  bool add(Json value);
  bool fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  const std::span<const std::string_view>* const known_;
  const std::string_view what_;
  const int32_t max_depth_;
  JsonBody body_;
  absl::Status status_;
  int32_t depth_ = 0;
  int64_t n_values_ = 0;
  bool is_skipping_ = false;  // within the value of an unknown field
  std::string field_;         // the last key of the outermost object
  // The containers that are open, outermost first. A container moves its values only when one is
  // added to it, and then none of them is open.
  std::vector<Json*> open_;
};

bool BodyReader::key(std::string& name) {
  if (depth_ == 1 && known_ != nullptr) {
    field_ = name;
    is_skipping_ = std::ranges::find(*known_, name) == known_->end();
    if (is_skipping_ && body_.unknown.size() < kMaxUnknownNames) {
      body_.unknown.push_back(shorten(name, 64));
    }
  }
  // Looking for the key here would make a large object quadratic: see keep_last_of_equal_keys.
  if (!is_skipping_) {
    open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(name), Json());
  }
  return true;
}

// Of equal keys the last counts, in the place of the first, as in Python's dict.
void keep_last_of_equal_keys(Json::object_t& object) {
  if (object.size() < 2) return;
  Json::object_t::Container& items = object;  // by place; the map's own operator takes a key
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](size_t i) -> const std::string& { return items[i].first; });
  std::vector<bool> is_repeated(items.size());
  bool any = false;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const std::string& key = items[order[begin]].first;
    for (end = begin + 1; end < order.size() && items[order[end]].first == key; ++end) {
      is_repeated[order[end]] = any = true;
    }
    if (end > begin + 1) items[order[begin]].second = std::move(items[order[end - 1]].second);
  }
  if (!any) return;
  Json::object_t kept;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!is_repeated[i]) kept.emplace_back(items[i].first, std::move(items[i].second));
  }
  object = std::move(kept);
}

bool BodyReader::open(Json::value_t type) {
  if (depth_ >= max_depth_) {
    return fail(base::invalid_argument("{} is nested deeper than {} levels (--max-json-depth)",
                                       what_, max_depth_));
  }
  if (!is_skipping_) {
    if (!add(Json(type))) return false;
    Json* const parent = open_.empty() ? nullptr : open_.back();
    open_.push_back(parent == nullptr    ? &body_.object
                    : parent->is_array() ? &parent->back()
                                         : &parent->get_ref<Json::object_t&>().back().second);
  }
  ++depth_;
  return true;
}

bool BodyReader::close() {
  --depth_;
  if (!is_skipping_) {
    if (open_.back()->is_object()) {
      keep_last_of_equal_keys(open_.back()->get_ref<Json::object_t&>());
    }
    open_.pop_back();
  } else if (depth_ == 1) {
    is_skipping_ = false;
  }
  return true;
}

bool BodyReader::add(Json value) {
  if (is_skipping_) {
    if (depth_ == 1) is_skipping_ = false;
    return true;
  }
  n_values_ += value.is_string() || value.is_structured() ? 4 : 1;
  if (n_values_ > kMaxJsonValues) {
    return fail(base::invalid_argument("{} holds too many values", what_));
  }
  if (open_.empty()) {
    if (!value.is_object()) return fail(base::invalid_argument("{} must be a JSON object", what_));
    body_.object = std::move(value);
  } else if (open_.back()->is_array()) {
    open_.back()->push_back(std::move(value));
  } else {
    open_.back()->get_ref<Json::object_t&>().back().second = std::move(value);
  }
  return true;
}

bool BodyReader::parse_error(size_t position, const std::string&,
                             const nlohmann::detail::exception& error) {
  constexpr int kOutOfRange = 400;  // the library's ids: 101 to 199 for what is not JSON, 401 on
  if (error.id > kOutOfRange) {
    if (known_ == nullptr) {
      return fail(base::invalid_argument("{} holds a number that is out of range", what_));
    }
    return fail(bad_field(shorten(field_, 64), "holds a number that is out of range"));
  }
  return fail(
      base::invalid_argument("{} is not valid JSON in UTF-8: error at byte {}", what_, position));
}

}  // namespace

absl::StatusOr<JsonBody> parse_object(std::string_view body,
                                      std::span<const std::string_view> known, int32_t max_depth) {
  BodyReader reader(&known, "the body", max_depth);
  if (!Json::sax_parse(body, &reader)) return reader.status();
  return reader.take();
}

absl::StatusOr<Json> parse_whole_object(std::string_view text, std::string_view what,
                                        int32_t max_depth) {
  BodyReader reader(nullptr, what, max_depth);
  if (!Json::sax_parse(text, &reader)) return reader.status();
  return reader.take().object;
}

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  if (value.is_array()) return value.empty() ? "an empty list" : "a list";
  if (value.is_object()) return "an object";
  return shorten(to_text(value), kMaxShownBytes);
}

bool as_int64(const Json& value, int64_t& out) {
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

absl::StatusOr<std::vector<int32_t>> read_token_ids(std::string_view field, const Json& list,
                                                    int32_t n_vocab) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& item : list) {
    int64_t id = 0;
    if (!as_int64(item, id) || id < 0 || id >= n_vocab) {
      return bad_field(field, "holds {}, which is not a token id from 0 to {}", shown(item),
                       n_vocab - 1);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

const Json* Fields::find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status Fields::read(std::string_view name, bool& out) const {
  const Json* value = find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return bad_field(name, "must be true or false, not {}", shown(*value));
  out = value->get<bool>();
  return absl::OkStatus();
}

absl::Status Fields::read(std::string_view name, std::string& out, size_t max_bytes) const {
  const Json* value = find(name);
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
  const Json* value = find(name);
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
  const Json* value = find(name);
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
                 shown(Json(name)));
  }
}

}  // namespace pagoda::api
