#include "server/api/generation_request.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

constexpr auto kCommonFields = std::to_array<std::string_view>(
    {"model", "min_tokens", "temperature", "top_k", "top_p", "min_p", "n", "seed", "stop",
     "stop_token_ids", "ignore_eos", "logit_bias", "repetition_penalty", "presence_penalty",
     "frequency_penalty", "allowed_token_ids", "bad_words", "prompt_logprobs",
     "truncate_prompt_tokens", "return_token_ids", "stream", "stream_options", "user", "cache_salt",
     "priority", "session_id", "prompt_cache_key", "retention", "skip_special_tokens",
     "include_stop_str_in_output",
     // Refused unless they change nothing.
     "best_of", "length_penalty", "use_beam_search", "response_format", "structured_outputs",
     "guided_json", "guided_regex", "guided_choice", "guided_grammar", "prompt_embeds",
     "logits_processors"});

absl::Status read_stops(const Fields& fields, const RequestLimits& limits,
                        GenerationRequest& request) {
  const auto add = [&](const Json& item) {
    if (!item.is_string()) return bad_field("stop", "must hold strings, not {}", shown(item));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) return bad_field("stop", "must not hold an empty string");
    if (text.size() > kMaxStopBytes) {
      return bad_field("stop", "holds a string of more than {} bytes", kMaxStopBytes);
    }
    request.stop.push_back(text);
    return absl::OkStatus();
  };
  if (const Json* stop = fields.find("stop"); stop != nullptr && stop->is_array()) {
    if (stop->size() > kMaxStopStrings) {
      return bad_field("stop", "must hold at most {} strings, not {}", kMaxStopStrings,
                       stop->size());
    }
    for (const Json& item : *stop) RETURN_IF_ERROR(add(item));
  } else if (stop != nullptr) {
    RETURN_IF_ERROR(add(*stop));
  }
  if (const Json* ids = fields.find("stop_token_ids"); ids != nullptr) {
    if (!ids->is_array() || ids->size() > kMaxLogitBias) {
      return bad_field("stop_token_ids", "must be a list of at most {} token ids", kMaxLogitBias);
    }
    ASSIGN_OR_RETURN(request.sampling.stop_ids,
                     read_token_ids("stop_token_ids", *ids, limits.n_vocab));
    request.n_stop_token_ids = request.sampling.stop_ids.size();
  }
  RETURN_IF_ERROR(fields.read("ignore_eos", request.sampling.ignore_eos));
  if (!request.sampling.ignore_eos) {
    const std::vector<TokenId>& ends = limits.defaults.end_ids;
    request.sampling.stop_ids.insert(request.sampling.stop_ids.end(), ends.begin(), ends.end());
  }
  return fields.read("include_stop_str_in_output", request.include_stop_str_in_output);
}

absl::Status read_logit_bias(const Fields& fields, int32_t n_vocab,
                             engine::SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return absl::OkStatus();
  if (!bias->is_object() || bias->size() > kMaxLogitBias) {
    return bad_field("logit_bias", "must be an object of at most {} token ids", kMaxLogitBias);
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= n_vocab) {
      return bad_field("logit_bias", "has the key {}, which is not a token id from 0 to {}",
                       shown(Json(key)), n_vocab - 1);
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

absl::Status read_penalties(const Fields& fields, const SamplingDefaults& defaults,
                            engine::SamplingParams& sampling) {
  sampling.repetition_penalty = defaults.repetition_penalty.value_or(1.0F);
  RETURN_IF_ERROR(fields.read("repetition_penalty", sampling.repetition_penalty,
                              kMinRepetitionPenalty, kMaxRepetitionPenalty));
  RETURN_IF_ERROR(fields.read("presence_penalty", sampling.presence_penalty, -2, 2));
  return fields.read("frequency_penalty", sampling.frequency_penalty, -2, 2);
}

// Which tokens may be drawn at all.
absl::Status read_vocabulary_limits(const Fields& fields, int32_t n_vocab,
                                    GenerationRequest& request) {
  if (const Json* allowed = fields.find("allowed_token_ids"); allowed != nullptr) {
    if (!allowed->is_array() || allowed->empty() || std::ssize(*allowed) > n_vocab) {
      return bad_field("allowed_token_ids", "must be a list of 1 to {} token ids", n_vocab);
    }
    std::vector<TokenId>& ids = request.sampling.allowed_ids;
    ASSIGN_OR_RETURN(ids, read_token_ids("allowed_token_ids", *allowed, n_vocab));
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  const Json* words = fields.find("bad_words");
  if (words == nullptr) return absl::OkStatus();
  if (!words->is_array() || words->size() > kMaxBadWords) {
    return bad_field("bad_words", "must be a list of at most {} strings", kMaxBadWords);
  }
  for (const Json& word : *words) {
    const auto* text = word.get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || text->size() > kMaxBadWordBytes) {
      return bad_field("bad_words", "must hold strings of 1 to {} bytes, not {}", kMaxBadWordBytes,
                       shown(word));
    }
    request.bad_words.push_back(*text);
  }
  return absl::OkStatus();
}

absl::Status read_sampling(const Fields& fields, const RequestLimits& limits,
                           GenerationRequest& request) {
  engine::SamplingParams& sampling = request.sampling;
  const SamplingDefaults& defaults = limits.defaults;
  sampling.temperature = defaults.temperature.value_or(1.0F);
  sampling.top_p = defaults.top_p.value_or(1.0F);
  sampling.min_p = defaults.min_p.value_or(0.0F);
  RETURN_IF_ERROR(fields.read("temperature", sampling.temperature, 0, kMaxTemperature));
  RETURN_IF_ERROR(fields.read("top_p", sampling.top_p, 0, 1));
  RETURN_IF_ERROR(fields.read("min_p", sampling.min_p, 0, 1));
  int64_t top_k = defaults.top_k.value_or(0);
  RETURN_IF_ERROR(fields.read("top_k", top_k, -1));
  sampling.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, INT32_MAX));
  int64_t seed = 0;
  RETURN_IF_ERROR(fields.read("seed", seed));
  request.has_seed = fields.has("seed");
  sampling.seed = static_cast<uint64_t>(seed);
  int64_t n = 1;
  RETURN_IF_ERROR(fields.read("n", n, 1, kMaxChoicesPerPrompt));
  request.n = static_cast<int32_t>(n);
  RETURN_IF_ERROR(read_penalties(fields, defaults, sampling));
  RETURN_IF_ERROR(read_vocabulary_limits(fields, limits.n_vocab, request));
  return read_logit_bias(fields, limits.n_vocab, sampling);
}

absl::Status read_stream(const Fields& fields, GenerationRequest& request) {
  RETURN_IF_ERROR(fields.read("stream", request.stream));
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!request.stream) return bad_field("stream_options", "is only for requests with stream");
  if (!options->is_object()) {
    return bad_field("stream_options", "must be an object, not {}", shown(*options));
  }
  absl::Status status = Fields(*options).read("include_usage", request.include_usage);
  status.Update(Fields(*options).read("continuous_usage_stats", request.continuous_usage));
  request.continuous_usage = request.continuous_usage && request.include_usage;
  return status.ok() ? status : with_param(status, "stream_options");
}

// How long the KV of the request's session should stay.
absl::Status read_retention(const Fields& fields, GenerationRequest& request) {
  const Json* retention = fields.find("retention");
  if (retention == nullptr) return absl::OkStatus();
  if (!retention->is_object()) {
    return bad_field("retention", "must be an object, not {}", shown(*retention));
  }
  int64_t priority = request.keep_priority;
  int64_t ttl_s = 0;
  constexpr int64_t kMaxTtlS = int64_t{366} * 24 * 3600;
  absl::Status status = Fields(*retention).read("priority", priority, 0, 100);
  status.Update(Fields(*retention).read("ttl_s", ttl_s, 1, kMaxTtlS));
  if (!status.ok()) return with_param(status, "retention");
  if (request.session.empty()) return bad_field("retention", "is for requests with a session_id");
  request.keep_priority = static_cast<int32_t>(priority);
  request.keep_ttl_us = ttl_s * 1'000'000;
  return absl::OkStatus();
}

// Who shares KV with whom, and who goes first.
absl::Status read_caching(const Fields& fields, GenerationRequest& request) {
  RETURN_IF_ERROR(fields.read("cache_salt", request.salt, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("prompt_cache_key", request.session, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("session_id", request.session, kMaxNameBytes));
  RETURN_IF_ERROR(fields.read("user", request.tenant, kMaxNameBytes));
  int64_t priority = 0;
  RETURN_IF_ERROR(fields.read("priority", priority, INT32_MIN, INT32_MAX));
  request.priority = static_cast<int32_t>(priority);
  return read_retention(fields, request);
}

// What is said of the prompt besides the answer.
absl::Status read_prompt_options(const Fields& fields, GenerationRequest& request) {
  int64_t n_logprobs = -1;
  RETURN_IF_ERROR(fields.read("prompt_logprobs", n_logprobs, 0, ops::kMaxTopLogprobs));
  request.sampling.n_prompt_logprobs = static_cast<int32_t>(n_logprobs);
  request.prompt_logprobs = n_logprobs >= 0;
  if (n_logprobs >= 0 && request.stream) {
    return bad_field("prompt_logprobs", "is only for requests without stream");
  }
  RETURN_IF_ERROR(
      fields.read("truncate_prompt_tokens", request.truncate_prompt_tokens, -1, INT32_MAX));
  if (request.truncate_prompt_tokens == 0 && fields.has("truncate_prompt_tokens")) {
    return bad_field("truncate_prompt_tokens", "must be at least 1, or -1 for what fits");
  }
  return fields.read("return_token_ids", request.return_token_ids);
}

// What would change the answer must not be passed over in silence.
absl::Status refuse_unsupported(const Fields& fields, int32_t n) {
  if (const Json* best_of = fields.find("best_of"); best_of != nullptr && *best_of != Json(n)) {
    return bad_field("best_of",
                     "is only taken where it equals n, which is {}: no more answers are computed "
                     "than are given",
                     n);
  }
  const NeutralField neutrals[] = {{"length_penalty", 1},
                                   {"use_beam_search", false},
                                   {"response_format", {{"type", "text"}}},
                                   {"structured_outputs", nullptr},
                                   {"guided_json", nullptr},
                                   {"guided_regex", nullptr},
                                   {"guided_choice", nullptr},
                                   {"guided_grammar", nullptr},
                                   {"prompt_embeds", nullptr},
                                   {"logits_processors", nullptr}};
  return refuse_unless_neutral(fields, neutrals);
}

}  // namespace

std::vector<std::string_view> known_fields(std::span<const std::string_view> added) {
  std::vector<std::string_view> fields(kCommonFields.begin(), kCommonFields.end());
  fields.insert(fields.end(), added.begin(), added.end());
  return fields;
}

absl::Status read_generation(const Fields& fields, const RequestLimits& limits,
                             GenerationRequest& request) {
  RETURN_IF_ERROR(fields.read("model", request.model, kMaxNameBytes));
  RETURN_IF_ERROR(read_sampling(fields, limits, request));
  RETURN_IF_ERROR(read_stops(fields, limits, request));
  RETURN_IF_ERROR(read_stream(fields, request));
  RETURN_IF_ERROR(read_caching(fields, request));
  RETURN_IF_ERROR(read_prompt_options(fields, request));
  RETURN_IF_ERROR(fields.read("skip_special_tokens", request.skip_special_tokens));
  return refuse_unsupported(fields, request.n);
}

absl::Status read_lengths(const Fields& fields, std::span<const std::string_view> names,
                          int64_t least, int64_t default_max_tokens, GenerationRequest& request) {
  request.max_tokens = default_max_tokens;
  // Each is checked; the first that is given counts.
  for (const std::string_view name : names) {
    if (!fields.has(name)) continue;
    int64_t max_tokens = 0;
    RETURN_IF_ERROR(fields.read(name, max_tokens, least));
    if (request.has_max_tokens) continue;
    request.max_tokens = max_tokens;
    request.has_max_tokens = true;
    request.length_field = name;
  }
  int64_t min_tokens = 0;
  RETURN_IF_ERROR(fields.read("min_tokens", min_tokens, 0));
  if (!request.has_max_tokens) request.max_tokens = std::max(request.max_tokens, min_tokens);
  if (min_tokens > request.max_tokens) {
    return bad_field("min_tokens", "is {}, more than {}, which is {}", min_tokens,
                     request.length_field, request.max_tokens);
  }
  request.sampling.min_tokens = static_cast<int32_t>(std::min<int64_t>(min_tokens, INT32_MAX));
  return absl::OkStatus();
}

absl::Status refuse_unless_neutral(const Fields& fields, std::span<const NeutralField> neutrals) {
  for (const NeutralField& neutral : neutrals) {
    const Json* value = fields.find(neutral.name);
    if (value == nullptr || *value == neutral.value) continue;
    return bad_field(neutral.name, "is not supported by this server");
  }
  return absl::OkStatus();
}

}  // namespace pagoda::api
