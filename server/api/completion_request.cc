#include "server/api/completion_request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "server/api/errors.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

using nlohmann::json;

constexpr double kMaxTemperature = 100;

constexpr auto kKnownFields = std::to_array<std::string_view>(
    {"model", "prompt", "max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "n",
     "seed", "stop", "stop_token_ids", "ignore_eos", "logit_bias", "logprobs", "echo", "stream",
     "stream_options", "user", "cache_salt", "priority", "session_id", "prompt_cache_key",
     "add_special_tokens", "skip_special_tokens", "include_stop_str_in_output",
     // Refused unless they change nothing.
     "suffix", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty",
     "length_penalty", "use_beam_search", "response_format", "structured_outputs", "guided_json",
     "guided_regex", "guided_choice", "guided_grammar", "bad_words", "allowed_token_ids",
     "prompt_logprobs", "truncate_prompt_tokens", "prompt_embeds"});

absl::StatusOr<Prompt> read_prompt(const json& value, const CompletionLimits& limits) {
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

absl::Status read_prompts(const Fields& fields, const CompletionLimits& limits,
                          CompletionRequest& request) {
  const json* value = fields.find("prompt");
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
  for (const json& item : *value) {
    if (item.is_string() != value->front().is_string() ||
        item.is_array() != value->front().is_array()) {
      return bad_field("prompt", "mixes strings, ids and lists");
    }
    ASSIGN_OR_RETURN(Prompt prompt, read_prompt(item, limits));
    request.prompts.push_back(std::move(prompt));
  }
  return absl::OkStatus();
}

absl::Status read_stops(const Fields& fields, int32_t n_vocab, CompletionRequest& request) {
  const auto add = [&](const json& item) {
    if (!item.is_string()) return bad_field("stop", "must hold strings, not {}", shown(item));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) return bad_field("stop", "must not hold an empty string");
    if (text.size() > kMaxStopBytes) {
      return bad_field("stop", "holds a string of more than {} bytes", kMaxStopBytes);
    }
    request.stop.push_back(text);
    return absl::OkStatus();
  };
  if (const json* stop = fields.find("stop"); stop != nullptr && stop->is_array()) {
    if (stop->size() > kMaxStopStrings) {
      return bad_field("stop", "must hold at most {} strings, not {}", kMaxStopStrings,
                       stop->size());
    }
    for (const json& item : *stop) RETURN_IF_ERROR(add(item));
  } else if (stop != nullptr) {
    RETURN_IF_ERROR(add(*stop));
  }
  if (const json* ids = fields.find("stop_token_ids"); ids != nullptr) {
    if (!ids->is_array() || ids->size() > kMaxLogitBias) {
      return bad_field("stop_token_ids", "must be a list of at most {} token ids", kMaxLogitBias);
    }
    ASSIGN_OR_RETURN(request.sampling.stop_ids, read_token_ids("stop_token_ids", *ids, n_vocab));
  }
  RETURN_IF_ERROR(fields.read("ignore_eos", request.sampling.ignore_eos));
  return fields.read("include_stop_str_in_output", request.include_stop_str_in_output);
}

absl::Status read_logit_bias(const Fields& fields, int32_t n_vocab,
                             engine::SamplingParams& sampling) {
  const json* bias = fields.find("logit_bias");
  if (bias == nullptr) return absl::OkStatus();
  if (!bias->is_object() || bias->size() > kMaxLogitBias) {
    return bad_field("logit_bias", "must be an object of at most {} token ids", kMaxLogitBias);
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= n_vocab) {
      return bad_field("logit_bias", "has the key {}, which is not a token id from 0 to {}",
                       shown(json(key)), n_vocab - 1);
    }
    // Written so that NaN fails it.
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      return bad_field("logit_bias", "must hold numbers from -100 to 100, not {}", shown(value));
    }
    sampling.logit_bias.push_back({id, static_cast<float>(value.get<double>())});
  }
  // Two spellings of one id ("7", "07") count together, in the order of ids.
  std::ranges::stable_sort(sampling.logit_bias, {}, &ops::LogitBias::token);
  return absl::OkStatus();
}

absl::Status read_sampling(const Fields& fields, CompletionRequest& request) {
  engine::SamplingParams& sampling = request.sampling;
  RETURN_IF_ERROR(fields.read("temperature", sampling.temperature, 0, kMaxTemperature));
  RETURN_IF_ERROR(fields.read("top_p", sampling.top_p, 0, 1));
  RETURN_IF_ERROR(fields.read("min_p", sampling.min_p, 0, 1));
  int64_t top_k = 0;
  RETURN_IF_ERROR(fields.read("top_k", top_k, -1));
  sampling.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, INT32_MAX));
  int64_t seed = 0;
  RETURN_IF_ERROR(fields.read("seed", seed));
  request.has_seed = fields.has("seed");
  sampling.seed = static_cast<uint64_t>(seed);
  int64_t n = 1;
  RETURN_IF_ERROR(fields.read("n", n, 1, kMaxChoicesPerPrompt));
  request.n = static_cast<int32_t>(n);
  return absl::OkStatus();
}

absl::Status read_lengths(const Fields& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(fields.read("echo", request.echo));
  RETURN_IF_ERROR(fields.read("max_tokens", request.max_tokens, 0));
  request.has_max_tokens = fields.has("max_tokens");
  if (request.max_tokens == 0 && !request.echo) {
    return bad_field("max_tokens", "must be at least 1 without echo");
  }
  int64_t min_tokens = 0;
  RETURN_IF_ERROR(fields.read("min_tokens", min_tokens, 0));
  if (!request.has_max_tokens) request.max_tokens = std::max(request.max_tokens, min_tokens);
  if (min_tokens > request.max_tokens) {
    return bad_field("min_tokens", "is {}, more than max_tokens, which is {}", min_tokens,
                     request.max_tokens);
  }
  request.sampling.min_tokens = static_cast<int32_t>(std::min<int64_t>(min_tokens, INT32_MAX));
  int64_t n_logprobs = -1;
  RETURN_IF_ERROR(fields.read("logprobs", n_logprobs, 0, ops::kMaxTopLogprobs));
  request.logprobs = n_logprobs >= 0;
  request.sampling.n_logprobs = static_cast<int32_t>(n_logprobs);
  if (request.echo) request.sampling.n_prompt_logprobs = request.sampling.n_logprobs;
  return absl::OkStatus();
}

absl::Status read_stream(const Fields& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(fields.read("stream", request.stream));
  const json* options = fields.find("stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!request.stream) return bad_field("stream_options", "is only for requests with stream");
  if (!options->is_object()) {
    return bad_field("stream_options", "must be an object, not {}", shown(*options));
  }
  const absl::Status status = Fields(*options).read("include_usage", request.include_usage);
  return status.ok() ? status : with_param(status, "stream_options");
}

// Who shares KV with whom, and who goes first.
absl::Status read_caching(const Fields& fields, CompletionRequest& request) {
  RETURN_IF_ERROR(fields.read("cache_salt", request.salt, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("prompt_cache_key", request.session, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("session_id", request.session, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("user", request.tenant, kMaxNameBytes));
  int64_t priority = 0;
  RETURN_IF_ERROR(fields.read("priority", priority, INT32_MIN, INT32_MAX));
  request.priority = static_cast<int32_t>(priority);
  return absl::OkStatus();
}

absl::Status refuse_unsupported(const Fields& fields, int32_t n) {
  // What would change the answer must not be passed over in silence.
  struct Neutral {
    std::string_view name;
    json value;
  };
  const Neutral neutrals[] = {{"suffix", ""},
                              {"best_of", n},
                              {"presence_penalty", 0},
                              {"frequency_penalty", 0},
                              {"repetition_penalty", 1},
                              {"length_penalty", 1},
                              {"use_beam_search", false},
                              {"response_format", {{"type", "text"}}},
                              {"structured_outputs", json()},
                              {"guided_json", json()},
                              {"guided_regex", json()},
                              {"guided_choice", json()},
                              {"guided_grammar", json()},
                              {"bad_words", json::array()},
                              {"allowed_token_ids", json()},
                              {"prompt_logprobs", json()},
                              {"truncate_prompt_tokens", json()},
                              {"prompt_embeds", json()}};
  for (const Neutral& neutral : neutrals) {
    const json* value = fields.find(neutral.name);
    if (value == nullptr || *value == neutral.value) continue;
    if (neutral.name == "best_of") {
      return bad_field("best_of", "is only supported where it equals n, which is {}", n);
    }
    return bad_field(neutral.name, "is not supported by this server");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> parse_completion(std::string_view body,
                                                   const CompletionLimits& limits) {
  ASSIGN_OR_RETURN(JsonBody parsed, parse_object(body, kKnownFields, limits.max_json_depth));
  const Fields fields(parsed.object);
  CompletionRequest request;
  request.unknown_fields = std::move(parsed.unknown);
  RETURN_IF_ERROR(fields.read("model", request.model, kMaxNameBytes));
  RETURN_IF_ERROR(read_prompts(fields, limits, request));
  RETURN_IF_ERROR(read_sampling(fields, request));
  RETURN_IF_ERROR(read_lengths(fields, request));
  RETURN_IF_ERROR(read_stops(fields, limits.n_vocab, request));
  RETURN_IF_ERROR(read_logit_bias(fields, limits.n_vocab, request.sampling));
  RETURN_IF_ERROR(read_stream(fields, request));
  RETURN_IF_ERROR(read_caching(fields, request));
  RETURN_IF_ERROR(fields.read("add_special_tokens", request.add_special_tokens));
  RETURN_IF_ERROR(fields.read("skip_special_tokens", request.skip_special_tokens));
  RETURN_IF_ERROR(refuse_unsupported(fields, request.n));
  const auto n_choices = static_cast<int64_t>(request.prompts.size()) * request.n;
  if (n_choices > limits.max_choices) {
    return bad_field(request.n > 1 ? "n" : "prompt", "asks for {} answers; at most {} are given",
                     n_choices, limits.max_choices);
  }
  return request;
}

}  // namespace pagoda::api
