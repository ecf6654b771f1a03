// The body of POST /v1/completions as a value: parsed, typed and in range, not yet tokenized.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/request.h"

namespace pagoda::api {

using model::TokenId;

inline constexpr int64_t kDefaultMaxTokens = 16;
inline constexpr int64_t kMaxChoicesPerPrompt = 128;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 4096;
inline constexpr size_t kMaxLogitBias = 1024;

struct Prompt {
  bool is_text = false;
  std::string text;          // when is_text
  std::vector<TokenId> ids;  // when not, or once tokenized
};

struct CompletionRequest {
  std::string model;  // empty: whatever is served
  std::vector<Prompt> prompts;
  // All but max_tokens, and seed only with has_seed.
  engine::SamplingParams sampling;
  int64_t max_tokens = kDefaultMaxTokens;  // left out, at least min_tokens
  bool has_max_tokens = false;
  bool has_seed = false;
  int32_t n = 1;
  std::vector<std::string> stop;
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool logprobs = false;
  bool add_special_tokens = true;
  bool skip_special_tokens = true;
  bool include_stop_str_in_output = false;
  std::string salt;
  std::string session;
  std::string tenant;  // the user named; shares are fair between tenants
  int32_t priority = 0;

  std::vector<std::string> unknown_fields;
};

struct CompletionLimits {
  int32_t n_vocab = 0;
  int32_t max_json_depth = 128;
  int64_t max_choices = 256;  // prompts times n
  int32_t max_model_len = std::numeric_limits<int32_t>::max();
};

// kInvalidArgument, with the field as its param, for whatever is wrong or not supported. Lists that
// are too long are refused before anything is built of them.
absl::StatusOr<CompletionRequest> parse_completion(std::string_view body,
                                                   const CompletionLimits& limits);

}  // namespace pagoda::api
