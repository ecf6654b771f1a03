// Bodies of requests: whatever the bytes, the parse ends with a value in range or with an error
// that is itself valid JSON.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "server/api/completion_request.h"
#include "server/api/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagoda;
  const api::RequestLimits limits{.n_vocab = 1000, .max_json_depth = 20, .max_choices = 64};
  const auto request = api::parse_completion({reinterpret_cast<const char*>(data), size}, limits);
  if (!request.ok()) {
    CHECK(nlohmann::json::accept(api::error_body(request.status())));
    return 0;
  }
  const engine::SamplingParams& sampling = request->sampling;
  CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  CHECK(sampling.top_p >= 0 && sampling.top_p <= 1 && sampling.min_p >= 0 && sampling.min_p <= 1);
  CHECK(sampling.top_k >= 0 && sampling.min_tokens >= 0);
  CHECK(request->max_tokens >= 0 && sampling.min_tokens <= request->max_tokens);
  CHECK(sampling.n_logprobs >= -1 && sampling.n_logprobs <= ops::kMaxTopLogprobs);
  CHECK(!request->prompts.empty() && request->n >= 1);
  CHECK_LE(std::ssize(request->prompts) * request->n, limits.max_choices);
  for (const api::Prompt& prompt : request->prompts) {
    for (const int32_t id : prompt.ids) CHECK(id >= 0 && id < limits.n_vocab);
  }
  for (const ops::LogitBias& bias : sampling.logit_bias) {
    CHECK(bias.token >= 0 && bias.token < limits.n_vocab);
    CHECK(bias.value >= -100 && bias.value <= 100);
  }
  for (const std::string& stop : request->stop) CHECK(!stop.empty());
  return 0;
}
