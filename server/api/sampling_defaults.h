// What a model's makers recommend for sampling; counts where a request says nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::api {

// Ranges of requests and of these files.
inline constexpr double kMaxTemperature = 100;
inline constexpr double kMinRepetitionPenalty = 0.01;
inline constexpr double kMaxRepetitionPenalty = 100;

struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<int64_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<int64_t> max_tokens;
  std::vector<model::TokenId> end_ids;  // end an answer, besides those of the vocabulary
};

// The text of a generation_config.json as `transformers` writes it: temperature, top_k, top_p,
// min_p, repetition_penalty, max_new_tokens, eos_token_id. Other keys are passed over, do_sample
// among them, as vLLM does. kInvalidArgument names the key.
absl::StatusOr<SamplingDefaults> parse_generation_config(std::string_view text, int32_t n_vocab);

}  // namespace pagoda::api
