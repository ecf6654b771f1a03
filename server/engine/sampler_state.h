// What the draws of one sequence depend on beside its logits: biases, bans and token counts. A pure
// function of the request and the tokens so far, cached or computed: preemption leaves no trace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/request.h"

namespace pagoda::engine {

// Engine thread only. Kept up token by token: a token costs a search in the counts and a look at
// the end of each bad word, and no memory is allocated after construction.
class SamplerState {
 public:
  // Reads `sampling` as long as it lives. end_ids: what ends an answer unless ignore_eos.
  SamplerState(const SamplingParams& sampling, std::span<const TokenId> end_ids,
               std::span<const TokenId> prompt);

  // tokens: prompt and answer; the last one is new.
  void append(std::span<const TokenId> tokens);
  // True when `token` would end the answer if it were drawn now.
  bool is_stop(TokenId token) const;

  // Sets all of `row` that the request decides, without choice and report. Its lists are this
  // object's and the request's: good until the next append.
  void fill(ops::SampleRow& row) const;

 private:
  // Whose token is banned in this draw and maybe not in the next.
  void ban_for_next(std::span<const TokenId> tokens);

  const SamplingParams& sampling_;
  int32_t n_output_ = 0;
  std::vector<TokenId> stop_ids_;  // sorted
  // The request's and its bad words of a single id, then the bans of the next draw: end ids until
  // min_tokens, last ids of bad words whose other ids are the end of the tokens.
  std::vector<ops::LogitBias> bias_;
  size_t n_lasting_bias_ = 0;
  std::vector<TokenId> end_bans_;
  std::vector<ops::TokenCount> counts_;  // by token; the prompt's only for a repetition penalty
};

// kInvalidArgument when no token could be drawn first, so that the request can never have an
// answer: what allowed_ids leaves (all, when it is empty) is banned by bad words of one id, by a
// bias of minus infinity or, with min_tokens, because it ends the answer. Ids are in [0, n_vocab).
//
// Longer bad words can still take everything away later on. Then the sampler draws -1.
absl::Status check_drawable(const SamplingParams& sampling, std::span<const TokenId> end_ids,
                            int32_t n_vocab);

}  // namespace pagoda::engine
