// The JSON of answers to /v1/completions. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/logprobs.h"
#include "server/engine/request.h"

namespace pagoda::api {

// What stands in every object of one answer.
struct CompletionHead {
  std::string id;
  std::string model;
  int64_t created_s = 0;
};

struct ChoiceView {
  int32_t index = 0;
  std::string_view text;
  const LogprobLists* logprobs = nullptr;             // null: null
  std::optional<engine::FinishReason> finish_reason;  // none: null
};

// Tokens of a whole request: each prompt counts once, whatever n.
struct UsageTotals {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
};

std::string completion_json(const CompletionHead& head, const std::vector<ChoiceView>& choices,
                            const UsageTotals& usage);

// Server-sent events, each ended by an empty line. with_usage: the client asked for the usage, so
// every chunk has the field, null but in the last.
std::string chunk_event(const CompletionHead& head, const ChoiceView& choice, bool with_usage);
std::string usage_event(const CompletionHead& head, const UsageTotals& usage);
std::string error_event(const absl::Status& status);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace pagoda::api
