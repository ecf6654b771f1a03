// Bodies of requests: JSON within limits, and the reading of fields out of it.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::api {

// Keeps the order of keys as they were sent: a chat template shows it to the model.
using Json = nlohmann::ordered_json;

// Of names in requests: models, salts, sessions, users.
inline constexpr size_t kMaxNameBytes = 1024;
// Some hundred MiB, whatever the body is made of: a value takes many times the room of its text.
inline constexpr int64_t kMaxJsonValues = 4 << 20;

struct JsonBody {
  Json object;                       // only fields that are known
  std::vector<std::string> unknown;  // names of the others, at most sixteen
};

// Parses a JSON object (RFC 8259, UTF-8). A nesting deeper than max_depth ends the parse where it
// occurs, and so do more than kMaxJsonValues values (a string, a list and an object count as four).
// What stands under an unknown field is checked but not kept. Where a key stands twice the last one
// counts. kInvalidArgument otherwise.
absl::StatusOr<JsonBody> parse_object(std::string_view body,
                                      std::span<const std::string_view> known, int32_t max_depth);
// The same for an object of which everything is kept; errors call it `what`.
absl::StatusOr<Json> parse_whole_object(std::string_view text, std::string_view what,
                                        int32_t max_depth);

// The text of a value in one line. Text in it that is not UTF-8 is replaced by U+FFFD.
std::string to_text(const Json& value);

// A short form of a value for error messages.
std::string shown(const Json& value);

// Reads typed fields. An absent field and null leave the target alone. kInvalidArgument names the
// field. Borrows the object.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  // Null when absent or null.
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  absl::Status read(std::string_view name, bool& out) const;
  absl::Status read(std::string_view name, std::string& out, size_t max_bytes) const;
  // Numbers like 16.0 count as integers, as JSON does not tell them apart.
  absl::Status read(std::string_view name, int64_t& out,
                    int64_t low = std::numeric_limits<int64_t>::min(),
                    int64_t high = std::numeric_limits<int64_t>::max()) const;
  absl::Status read(std::string_view name, float& out, double low, double high) const;

 private:
  const Json& object_;
};

// The value of an integer; none for anything else, fractions and what int64 cannot hold.
bool as_int64(const Json& value, int64_t& out);

// A list of ids of a vocabulary; kInvalidArgument naming `field` for anything else in it.
absl::StatusOr<std::vector<int32_t>> read_token_ids(std::string_view field, const Json& list,
                                                    int32_t n_vocab);

// Logs each unknown field once, however many requests have it. Any thread.
class FieldWarnings {
 public:
  void warn(std::span<const std::string> names);

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;  // guarded by mutex_; bounded
};

}  // namespace pagoda::api
