// The body of POST /v1/completions as a value: parsed, typed and in range, not yet tokenized.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/generation_request.h"

namespace pagoda::api {

inline constexpr int64_t kDefaultMaxTokens = 16;

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts;
  bool echo = false;
  bool add_special_tokens = true;
};

// kInvalidArgument, with the field as its param, for whatever is wrong or not supported.
absl::StatusOr<CompletionRequest> parse_completion(std::string_view body,
                                                   const RequestLimits& limits);

}  // namespace pagoda::api
