// Bodies of requests: whatever the bytes, the parse ends with a value in range or with an error
// that is itself valid JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/api/chat_request.h"
#include "server/api/completion_request.h"
#include "server/api/errors.h"

namespace {

using namespace pagoda;

void check_common(const api::GenerationRequest& request, const api::RequestLimits& limits) {
  const engine::SamplingParams& sampling = request.sampling;
  CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  CHECK(sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.min_p >= 0 && sampling.min_p <= 1);
  CHECK(sampling.repetition_penalty > 0 && sampling.repetition_penalty <= 100);
  CHECK(sampling.presence_penalty >= -2 && sampling.presence_penalty <= 2);
  CHECK(sampling.frequency_penalty >= -2 && sampling.frequency_penalty <= 2);
  CHECK(sampling.top_k >= 0 && sampling.min_tokens >= 0);
  CHECK(request.max_tokens >= 0 && sampling.min_tokens <= request.max_tokens);
  CHECK(sampling.n_logprobs >= -1 && sampling.n_logprobs <= ops::kMaxTopLogprobs);
  CHECK(sampling.n_prompt_logprobs >= -1 && sampling.n_prompt_logprobs <= ops::kMaxTopLogprobs);
  CHECK(request.n >= 1 && request.n <= limits.max_choices);
  for (const int32_t id : sampling.allowed_ids) CHECK(id >= 0 && id < limits.n_vocab);
  for (const ops::LogitBias& bias : sampling.logit_bias) {
    CHECK(bias.token >= 0 && bias.token < limits.n_vocab);
    CHECK(bias.value >= -100 && bias.value <= 100);
  }
  for (const std::string& stop : request.stop) CHECK(!stop.empty());
  for (const std::string& word : request.bad_words) CHECK(!word.empty());
}

void check_chat(const api::ChatInput& chat) {
  CHECK(chat.messages.is_array() && !chat.messages.empty());
  for (const api::Json& message : chat.messages) {
    CHECK(message.at("role").is_string());
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (const api::Json& part : *content) CHECK(part.at("text").is_string());
  }
  CHECK(chat.kwargs.is_object());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const api::RequestLimits limits{.n_vocab = 1000, .max_json_depth = 20, .max_choices = 64};
  const auto completion = api::parse_completion(body, limits);
  if (completion.ok()) {
    check_common(*completion, limits);
    CHECK(!completion->prompts.empty());
    CHECK_LE(std::ssize(completion->prompts) * completion->n, limits.max_choices);
    for (const api::Prompt& prompt : completion->prompts) {
      for (const int32_t id : prompt.ids) CHECK(id >= 0 && id < limits.n_vocab);
    }
  } else {
    CHECK(api::Json::accept(api::error_body(completion.status())));
  }
  const auto chat = api::parse_chat(body, limits);
  if (chat.ok()) {
    check_common(*chat, limits);
    check_chat(chat->chat);
  } else {
    CHECK(api::Json::accept(api::error_body(chat.status())));
  }
  return 0;
}
