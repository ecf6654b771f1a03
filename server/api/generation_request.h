// What every request for text may say, whatever its dialect: parsed, typed and in range.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/api/json.h"
#include "server/api/sampling_defaults.h"
#include "server/engine/request.h"

namespace pagoda::api {

using model::TokenId;

inline constexpr int64_t kMaxChoicesPerPrompt = 128;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 4096;
inline constexpr size_t kMaxLogitBias = 1024;
inline constexpr size_t kMaxBadWords = 256;
inline constexpr size_t kMaxBadWordBytes = 256;

// A prompt on its way from text to ids.
struct Prompt {
  bool is_text = false;      // `text` is what the client sent, and all of it counts
  std::string text;          // empty where the client sent ids
  std::vector<TokenId> ids;  // once tokenized
};

struct GenerationRequest {
  std::string model;  // empty: whatever is served
  // All but max_tokens and bad_words, and seed only with has_seed.
  engine::SamplingParams sampling;
  int64_t max_tokens = 0;  // at least min_tokens
  bool has_max_tokens = false;
  std::string_view length_field = "max_tokens";  // what the client called max_tokens
  size_t n_stop_token_ids = 0;  // the first so many of sampling.stop_ids are the client's
  bool has_seed = false;
  int32_t n = 1;
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;
  // Of a prompt only so many tokens at its end count; 0: all, -1: as many as leave room for the
  // answer.
  int64_t truncate_prompt_tokens = 0;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every chunk
  bool logprobs = false;          // of the answer
  bool prompt_logprobs = false;   // of the prompt, in a list of their own
  bool return_token_ids = false;
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  std::string salt;
  std::string session;
  int32_t keep_priority = 50;  // retention of its KV
  int64_t keep_ttl_us = 0;
  std::string tenant;  // the user named; shares are fair between tenants
  int32_t priority = 0;

  std::vector<std::string> unknown_fields;
};

struct RequestLimits {
  int32_t n_vocab = 0;
  int32_t max_json_depth = 128;
  int64_t max_choices = 256;  // prompts times n
  int32_t max_model_len = std::numeric_limits<int32_t>::max();
  SamplingDefaults defaults = {};
};

// Fields that read_generation reads or refuses, and those that a dialect adds to them.
std::vector<std::string_view> known_fields(std::span<const std::string_view> added);

// All that is common but the lengths. kInvalidArgument, with the field as its param, for whatever
// is wrong or not supported.
absl::Status read_generation(const Fields& fields, const RequestLimits& limits,
                             GenerationRequest& request);

// max_tokens, by the first of these names that is given, and min_tokens. Left out it is
// default_max_tokens, or min_tokens if that is more.
absl::Status read_lengths(const Fields& fields, std::span<const std::string_view> names,
                          int64_t least, int64_t default_max_tokens, GenerationRequest& request);

// A field that is accepted only where it changes nothing.
struct NeutralField {
  std::string_view name;
  Json value;  // null: only null
};
absl::Status refuse_unless_neutral(const Fields& fields, std::span<const NeutralField> neutrals);

}  // namespace pagoda::api
