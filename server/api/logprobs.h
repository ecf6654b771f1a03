// Log probabilities in OpenAI's completions form, gathered token by token.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/detokenizer.h"
#include "server/engine/output.h"

namespace pagoda::api {

using model::TokenId;

// How a token is shown: its text, or where its bytes alone are not UTF-8, because it is a part of a
// character, "bytes:\xf0\x9f" with two hexadecimal digits for each byte. Always valid UTF-8.
std::string shown_token(const model::Tokenizer& tokenizer, TokenId id);

// JSON has no infinity: -9999 stands for it, and for whatever is not a number.
double finite_logprob(float logprob);

int64_t count_code_points(std::string_view utf8);

// The four lists; of equal length.
struct LogprobLists {
  using Top = std::vector<std::pair<std::string, double>>;
  std::vector<std::string> tokens;
  std::vector<std::optional<double>> token_logprobs;  // none for the first token of a prompt
  std::vector<std::optional<Top>> top_logprobs;  // most likely first, the token itself included
  std::vector<int64_t> text_offset;              // code points from the start of the choice's text
};

// Of one choice. One thread at a time.
class LogprobWriter {
 public:
  LogprobWriter(const model::Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), output_(tokenizer, skip_special) {}

  // An echoed prompt. `logprobs` belong to its second token and those after it. The first n_hidden
  // tokens have no text (a beginning-of-sequence token that the server added).
  void add_prompt(std::span<const TokenId> prompt, size_t n_hidden, bool skip_special,
                  std::span<const engine::TokenLogprob> logprobs);
  // The text that comes before the first output token without log probabilities.
  void skip_text(std::string_view text) { offset_ += count_code_points(text); }
  void add(const engine::TokenLogprob& logprob);

  const LogprobLists& lists() const { return lists_; }
  LogprobLists take() { return std::exchange(lists_, {}); }

 private:
  void append(const engine::TokenLogprob& logprob);

  const model::Tokenizer& tokenizer_;
  model::Detokenizer output_;
  int64_t offset_ = 0;
  LogprobLists lists_;
};

}  // namespace pagoda::api
