// What a client asked for, in the engine's terms: token ids and numbers, already validated.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kernels/ops.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::engine {

using model::TokenId;

// Ranges are the API's job; here they only mean.
struct SamplingParams {
  float temperature = 1;
  int32_t top_k = 0;  // 0: off
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  int32_t max_tokens = 16;  // 0: nothing is drawn
  int32_t min_tokens = 0;   // until then no end id can be drawn
  bool ignore_eos = false;
  std::vector<TokenId> stop_ids;  // end the answer, and are not part of it
  std::vector<ops::LogitBias> logit_bias;
  // Logits of tokens in prompt or answer are divided (positive) or multiplied (negative) by it.
  float repetition_penalty = 1;
  // Taken off the logits of tokens in the answer: once, and once for each time.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Sorted; empty: all may be drawn. An id that ends the answer is drawn only if it is in the list.
  std::vector<TokenId> allowed_ids;
  // The last id of each is not drawn while the ids before it are the end of prompt and answer.
  std::vector<std::vector<TokenId>> bad_words;
  int32_t n_logprobs = -1;         // alternatives a token; -1: no log probabilities
  int32_t n_prompt_logprobs = -1;  // the same for the tokens of the prompt
};

enum class FinishReason : uint8_t { kStop, kLength, kAbort, kError };
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", "abort", "error"

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;                // prompt tokens whose KV was found
  std::array<int32_t, 3> cached_by_tier{};  // of those, by cache::TierKind
};

// One thing that happened to a sequence.
struct TokenEvent {
  enum class Kind : uint8_t {
    kPrompt,  // log probability of a prompt token; `result.token` is that token
    kToken,   // an output token
    kFinish,  // the last event; reason and, for kError, error are set
  };
  Kind kind = Kind::kToken;
  ops::SampleResult result;
  FinishReason reason = FinishReason::kStop;
  TokenId stop_token = -1;  // kFinish: the drawn token that ended the answer; -1: none did
  Usage usage;              // so far, in every event
  absl::Status error;
};

// Where a sequence's tokens go. The engine thread calls it and never waits: push() must return at
// once. After kFinish nothing follows. The queue behind it holds at most the prompt's and
// max_tokens' events, so it is bounded by the request itself.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void push(TokenEvent&& event) = 0;
  // Events that belong together: no reader sees some of them and not yet the others, if it matters
  // to the sink. They are moved from.
  virtual void push_together(std::span<TokenEvent> events) {
    for (TokenEvent& event : events) push(std::move(event));
  }
};

// Immutable once submitted.
struct Request {
  RequestId id;
  RequestId group;              // requests of one answer have the same; 0: alone
  std::vector<TokenId> prompt;  // never empty
  SamplingParams sampling;
  int32_t choice = 0;          // which of the n answers to the prompt
  int64_t arrival_us = 0;      // Clock::now_us
  int64_t deadline_us = 0;     // 0: none
  std::string tenant;          // fair shares are per tenant
  std::string salt;            // KV is shared only under the same salt
  std::string session;         // a conversation that may come back; empty: none
  int32_t keep_priority = 50;  // of its KV, 0 … 100: lower leaves a tier first
  int64_t keep_ttl_us = 0;     // then that is over; 0: it never is
  int32_t priority = 0;        // higher first
  AdapterId adapter;           // the slot it is loaded in
  std::string adapter_key;     // cache::canonical_adapter of its content and scale; empty: none
  // Shared with the worker that reads from it: whichever of the two ends last frees it.
  std::shared_ptr<TokenSink> sink;
};

}  // namespace pagoda::engine
