#include "server/api/sampling_defaults.h"

#include "base/check.h"
#include "server/api/errors.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

constexpr int32_t kMaxDepth = 64;

absl::Status read_optional(const Fields& fields, std::string_view name, double low, double high,
                           std::optional<float>& out) {
  if (!fields.has(name)) return absl::OkStatus();
  float value = 0;
  RETURN_IF_ERROR(fields.read(name, value, low, high));
  out = value;
  return absl::OkStatus();
}

absl::Status read_optional(const Fields& fields, std::string_view name, int64_t low,
                           std::optional<int64_t>& out) {
  if (!fields.has(name)) return absl::OkStatus();
  int64_t value = 0;
  RETURN_IF_ERROR(fields.read(name, value, low));
  out = value;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingDefaults> parse_generation_config(std::string_view text, int32_t n_vocab) {
  ASSIGN_OR_RETURN(const Json object, parse_whole_object(text, "the file", kMaxDepth));
  const Fields fields(object);
  SamplingDefaults defaults;
  RETURN_IF_ERROR(read_optional(fields, "temperature", 0, kMaxTemperature, defaults.temperature));
  RETURN_IF_ERROR(read_optional(fields, "top_p", 0, 1, defaults.top_p));
  RETURN_IF_ERROR(read_optional(fields, "min_p", 0, 1, defaults.min_p));
  RETURN_IF_ERROR(read_optional(fields, "repetition_penalty", kMinRepetitionPenalty,
                                kMaxRepetitionPenalty, defaults.repetition_penalty));
  RETURN_IF_ERROR(read_optional(fields, "top_k", -1, defaults.top_k));
  RETURN_IF_ERROR(read_optional(fields, "max_new_tokens", 1, defaults.max_tokens));
  const Json* end = fields.find("eos_token_id");
  if (end == nullptr) return defaults;
  const Json list = end->is_array() ? *end : Json::array({*end});
  ASSIGN_OR_RETURN(defaults.end_ids, read_token_ids("eos_token_id", list, n_vocab));
  return defaults;
}

}  // namespace pagoda::api
