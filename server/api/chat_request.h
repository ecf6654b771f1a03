// The body of POST /v1/chat/completions as a value: parsed, typed and in range, not yet rendered.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/generation_request.h"

namespace pagoda::api {

inline constexpr size_t kMaxMessages = 65536;
inline constexpr size_t kMaxTemplateKwargs = 64;

// What a chat template renders. Each value comes from the client.
struct ChatInput {
  // Objects with a role out of the known ones and a content that is a string, null or a list of
  // {"type": "text", "text": …}. The arguments of tool calls are objects.
  Json messages = Json::array();
  Json tools;                    // a list, or null
  Json documents;                // a list, or null
  Json kwargs = Json::object();  // further variables of the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool add_special_tokens = false;  // the template writes the special tokens as a rule
};

struct ChatRequest : GenerationRequest {
  ChatInput chat;
};

// Fields that read_chat_input reads.
std::vector<std::string_view> chat_input_fields();
// Takes what it needs out of `object`. kInvalidArgument with the field as its param.
absl::StatusOr<ChatInput> read_chat_input(Json& object, int32_t max_json_depth);

absl::StatusOr<ChatRequest> parse_chat(std::string_view body, const RequestLimits& limits);

}  // namespace pagoda::api
