// How /v1/chat/completions answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/answer.h"

namespace pagoda::api {

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(AnswerHead head, GenerationRequest request, Prompt prompt,
             const model::Tokenizer& tokenizer);

  std::string begin(size_t choice, std::vector<engine::TokenLogprob> prompt_logprobs) override;
  std::string add(size_t choice, engine::OutputDelta&& delta) override;
  std::string end(const UsageTotals& usage) override;

 private:
  // What was not yet sent; of a whole answer everything.
  struct Choice {
    std::string text;
    std::vector<TokenId> ids;
    std::vector<engine::TokenLogprob> logprobs;
    std::optional<engine::OutputDelta> last;
    int64_t n_tokens = 0;
  };

  // `key` is "message" or "delta".
  Json take_choice(size_t index, std::string_view key, Json message);
  std::string chunk(size_t index, Json delta);
  Json logprobs_json(const std::vector<engine::TokenLogprob>& logprobs) const;

  std::vector<Choice> choices_;
  Json prompt_logprobs_;  // equal for all choices
  bool prompt_ids_due_ = false;
};

}  // namespace pagoda::api
