// How /v1/completions answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/answer.h"
#include "server/api/completion_request.h"
#include "server/api/logprobs.h"

namespace pagoda::api {

class CompletionAnswer final : public Answer {
 public:
  // Moves the prompts out of the request.
  CompletionAnswer(AnswerHead head, CompletionRequest request, const model::Tokenizer& tokenizer);

  std::string begin(size_t choice, std::vector<engine::TokenLogprob> prompt_logprobs) override;
  std::string add(size_t choice, engine::OutputDelta&& delta) override;
  std::string end(const UsageTotals& usage) override;

 private:
  struct Choice {
    explicit Choice(LogprobWriter writer) : logprobs(std::move(writer)) {}
    // What was not yet sent; of a whole answer everything.
    std::string text;
    std::vector<TokenId> ids;
    LogprobWriter logprobs;
    std::vector<engine::TokenLogprob> prompt_logprobs;
    bool prompt_ids_due = false;
    std::optional<engine::OutputDelta> last;
    int64_t n_tokens = 0;
  };

  void echo_prompt(size_t index, const std::vector<engine::TokenLogprob>& prompt_logprobs);
  Json take_choice(size_t index);
  std::string chunk(size_t index);

  const bool echo_;
  const bool add_special_tokens_;
  std::vector<Choice> choices_;
};

}  // namespace pagoda::api
