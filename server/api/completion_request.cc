#include "server/api/completion_request.h"

#include <algorithm>
#include <array>

#include "server/api/errors.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

constexpr auto kCompletionFields = std::to_array<std::string_view>(
    {"prompt", "max_tokens", "logprobs", "echo", "add_special_tokens", "suffix"});

absl::StatusOr<Prompt> read_prompt(const Json& value, const RequestLimits& limits) {
  Prompt prompt;
  if (value.is_string()) {
    prompt.is_text = true;
    prompt.text = value.get_ref<const std::string&>();
    return prompt;
  }
  if (!value.is_array()) {
    return bad_field("prompt",
                     "must be a string, a list of strings, a list of token ids or a list "
                     "of such lists, not {}",
                     shown(value));
  }
  if (value.empty()) return bad_field("prompt", "must not be empty");
  if (value.size() > static_cast<size_t>(limits.max_model_len)) {
    return with_code(bad_field("prompt", "has {} tokens; the context has {}", value.size(),
                               limits.max_model_len),
                     "context_length_exceeded");
  }
  ASSIGN_OR_RETURN(prompt.ids, read_token_ids("prompt", value, limits.n_vocab));
  return prompt;
}

absl::Status read_prompts(const Fields& fields, const RequestLimits& limits,
                          CompletionRequest& request) {
  const Json* value = fields.find("prompt");
  if (value == nullptr) return bad_field("prompt", "is required");
  const bool is_list = value->is_array() && !value->empty() &&
                       (value->front().is_string() || value->front().is_array());
  if (!is_list) {
    ASSIGN_OR_RETURN(Prompt prompt, read_prompt(*value, limits));
    request.prompts.push_back(std::move(prompt));
    return absl::OkStatus();
  }
  if (std::ssize(*value) > limits.max_choices) {
    return bad_field("prompt", "holds {} prompts; at most {} answers are given", value->size(),
                     limits.max_choices);
  }
  for (const Json& item : *value) {
    if (item.is_string() != value->front().is_string() ||
        item.is_array() != value->front().is_array()) {
      return bad_field("prompt", "mixes strings, ids and lists");
    }
    ASSIGN_OR_RETURN(Prompt prompt, read_prompt(item, limits));
    request.prompts.push_back(std::move(prompt));
  }
  return absl::OkStatus();
}

absl::Status read_logprobs(const Fields& fields, CompletionRequest& request) {
  int64_t n_logprobs = -1;
  RETURN_IF_ERROR(fields.read("logprobs", n_logprobs, 0, ops::kMaxTopLogprobs));
  engine::SamplingParams& sampling = request.sampling;
  request.logprobs = n_logprobs >= 0;
  sampling.n_logprobs = static_cast<int32_t>(n_logprobs);
  if (request.echo) {
    sampling.n_prompt_logprobs = std::max(sampling.n_prompt_logprobs, sampling.n_logprobs);
  }
  return absl::OkStatus();
}

absl::Status read_max_tokens(const Fields& fields, const SamplingDefaults& defaults,
                             CompletionRequest& request) {
  static constexpr std::string_view kNames[] = {"max_tokens"};
  RETURN_IF_ERROR(
      read_lengths(fields, kNames, 0, defaults.max_tokens.value_or(kDefaultMaxTokens), request));
  if (request.max_tokens == 0 && !request.echo && request.sampling.n_prompt_logprobs < 0) {
    return bad_field("max_tokens", "must be at least 1 without echo or prompt_logprobs");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> parse_completion(std::string_view body,
                                                   const RequestLimits& limits) {
  static const std::vector<std::string_view> kKnown = known_fields(kCompletionFields);
  ASSIGN_OR_RETURN(JsonBody parsed, parse_object(body, kKnown, limits.max_json_depth));
  const Fields fields(parsed.object);
  CompletionRequest request;
  request.unknown_fields = std::move(parsed.unknown);
  RETURN_IF_ERROR(read_prompts(fields, limits, request));
  RETURN_IF_ERROR(read_generation(fields, limits, request));
  RETURN_IF_ERROR(fields.read("echo", request.echo));
  RETURN_IF_ERROR(read_logprobs(fields, request));
  RETURN_IF_ERROR(read_max_tokens(fields, limits.defaults, request));
  RETURN_IF_ERROR(fields.read("add_special_tokens", request.add_special_tokens));
  const NeutralField neutrals[] = {{"suffix", ""}};
  RETURN_IF_ERROR(refuse_unless_neutral(fields, neutrals));
  const auto n_choices = static_cast<int64_t>(request.prompts.size()) * request.n;
  if (n_choices > limits.max_choices) {
    return bad_field(request.n > 1 ? "n" : "prompt", "asks for {} answers; at most {} are given",
                     n_choices, limits.max_choices);
  }
  return request;
}

}  // namespace pagoda::api
