// An answer under way: what was asked, and how its dialect writes what comes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/generation_request.h"
#include "server/engine/output.h"

namespace pagoda::api {

// What stands in every object of one answer.
struct AnswerHead {
  std::string id;
  std::string model;
  int64_t created_s = 0;
};

// Tokens of a whole request: each prompt counts once, whatever n.
struct UsageTotals {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  std::array<int64_t, 3> cached_by_tier{};  // of those, by cache::TierKind
  int64_t completion_tokens = 0;
};

// One for each dialect. Choice i is one of the n answers to prompt i / n. One thread at a time.
class Answer {
 public:
  // The prompts have their ids.
  Answer(AnswerHead head, GenerationRequest request, std::vector<Prompt> prompts,
         const model::Tokenizer& tokenizer);
  virtual ~Answer() = default;

  // Of a stream each of the next three gives the events to send now, which may be none; of a whole
  // answer only end() gives something, the body.

  // Once for each choice, before its first delta: log probabilities of the prompt's second token
  // and those after it, if they were wanted.
  virtual std::string begin(size_t choice, std::vector<engine::TokenLogprob> prompt_logprobs) = 0;
  virtual std::string add(size_t choice, engine::OutputDelta&& delta) = 0;
  // After the last delta of the last choice.
  virtual std::string end(const UsageTotals& usage) = 0;

  const AnswerHead& head() const { return head_; }
  const GenerationRequest& request() const { return request_; }
  size_t n_choices() const { return prompts_.size() * static_cast<size_t>(request_.n); }
  const Prompt& prompt_of(size_t choice) const {
    return prompts_[choice / static_cast<size_t>(request_.n)];
  }

 protected:
  const model::Tokenizer& tokenizer() const { return tokenizer_; }
  // "usage" of a chunk: null, or with continuous_usage what it is so far; none where the client did
  // not ask for the usage.
  void add_chunk_usage(size_t choice, int64_t n_completion_tokens, Json& chunk) const;
  // The last events of a stream of `object`s: the usage, if it was asked for, and [DONE].
  std::string stream_end(std::string_view object, const UsageTotals& usage) const;

 private:
  const AnswerHead head_;
  const GenerationRequest request_;
  const std::vector<Prompt> prompts_;
  const model::Tokenizer& tokenizer_;
};

// Parts that dialects share. Pure functions.

// {"id", "object", "created", "model"}
Json head_json(const AnswerHead& head, std::string_view object);
Json usage_json(const UsageTotals& usage);
// How a choice ended: a name, or null while it hasn't.
Json finish_reason_json(const engine::OutputDelta* last);
// Why: the stop string that was found, the id of the stop token that was drawn, else null.
Json stop_reason_json(const GenerationRequest& request, const engine::OutputDelta& last);
// vLLM's form: null for the first token, then {"ID": {"logprob", "rank", "decoded_token"}, …}.
Json prompt_logprobs_json(const model::Tokenizer& tokenizer,
                          const std::vector<engine::TokenLogprob>& logprobs);
// Tokens of a delta, with the one that ended the answer though it is no part of its text.
void append_token_ids(const engine::OutputDelta& delta, std::vector<TokenId>& ids);

// The object `head` with "choices" and the members of `tail` after its own. Choices are written one
// by one, since the JSON of a long list of log probabilities takes many times the room of its text.
std::string whole_answer(const Json& head, const std::function<Json(size_t)>& take_choice,
                         size_t n_choices, const Json& tail);

// Server-sent events, each ended by an empty line.
std::string event(const Json& json);
std::string error_event(const absl::Status& status);
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

}  // namespace pagoda::api
