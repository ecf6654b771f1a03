// The run of one request: its tokens so far, how far their KV is computed, and its right to blocks.
//
//          computed_len      tail_begin        tail_end     tokens.size()
//   0 ..........|.................|................|.............|
//   KV is there   to be computed     restored or     to be computed
//                                    restoring
//
// The tail comes up from below in whole blocks, from its end downwards. When computed_len has met
// tail_begin and all of the tail is there, it jumps to tail_end.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"
#include "cache/kv_cache.h"
#include "server/engine/request.h"
#include "server/engine/sampler_state.h"

namespace pagoda::engine {

enum class SeqState : uint8_t { kWaiting, kRestoring, kRunning, kPreempted, kFinished };

// Engine thread only.
class Sequence {
 public:
  // end_ids: what ends an answer unless ignore_eos.
  Sequence(SeqId id, Request request, const std::vector<TokenId>& end_ids);
  Sequence(const Sequence&) = delete;  // its parts point at each other
  Sequence& operator=(const Sequence&) = delete;

  SeqId id() const { return id_; }
  const Request& request() const { return request_; }
  const cache::CacheScope& scope() const { return scope_; }

  // Prompt and answer.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t prompt_len() const { return prompt_len_; }
  int32_t n_output() const { return n_tokens() - prompt_len_; }

  int32_t computed_len() const { return computed_len_; }
  int32_t tail_begin() const { return tail_begin_; }
  int32_t tail_end() const { return tail_end_; }
  // Tokens to compute before the next draw: up to the tail if there is one.
  int32_t n_pending() const { return (has_tail() ? tail_begin_ : n_tokens()) - computed_len_; }
  bool has_tail() const { return tail_begin_ < tail_end_; }
  bool is_prefill() const { return n_tokens() - computed_len_ > 1 || n_output() == 0; }

  // KV of [computed_len, computed_len + n) is there now.
  void advance(int32_t n);
  // The tail is what the lease has coming up; none: there is no tail (any more). True when
  // computed_len has jumped over it.
  bool follow_restore(const std::optional<cache::RestoreView>& restore);
  // Counts tokens that came up, by TierKind, as found in the cache.
  void add_restored(const std::array<int32_t, 3>& n_tokens);

  // A drawn token; allocates nothing.
  void append(TokenId token);
  // True when `token`, drawn now, only ends the answer and is no part of it.
  bool is_stop(TokenId token) const { return sampler_.is_stop(token); }
  // Room for no further token.
  bool is_full() const { return n_output() >= request_.sampling.max_tokens; }

  // How the token after position n_tokens()-1 is drawn; good until the next append.
  ops::SampleRow draw() const;
  // What is wanted of the row at `position`.
  bool wants_logprob(int32_t position) const;
  ops::SampleRow prompt_logprob(int32_t position) const;

  cache::UseCache use_cache() const;
  // It ran before its present start: what it finds it had already.
  bool was_preempted() const { return n_starts_ > (state_ == SeqState::kRunning ? 1 : 0); }
  // Takes the right to blocks; what it has comes up while the sequence waits.
  void hold(cache::PrefixLease lease);
  // With a lease.
  void start(SlotId slot);
  // Gives the lease up and starts over: only token ids remain.
  cache::PrefixLease stop(SeqState state);

  SeqState state() const { return state_; }
  SlotId slot() const { return slot_; }
  cache::PrefixLease& lease() { return lease_; }
  const cache::PrefixLease& lease() const { return lease_; }
  // The token of the last row is known only to the sampler's slot.
  bool last_token_in_slot() const { return last_token_in_slot_; }
  void set_last_token_in_slot(bool in_slot) { last_token_in_slot_ = in_slot; }

  Usage usage() const;

  // Bookkeeping of the engine.
  int64_t last_planned_step = -1;
  int64_t first_planned_us = -1;
  bool group_has_begun = false;  // another choice of the request has run
  bool was_looked_for = false;   // whether its KV can come up early
  int64_t first_token_us = -1;
  int64_t last_token_us = -1;

 private:
  const SeqId id_;
  const Request request_;
  const cache::CacheScope scope_;
  const int32_t prompt_len_;
  SeqState state_ = SeqState::kWaiting;
  std::vector<TokenId> tokens_;
  SamplerState sampler_;

  cache::PrefixLease lease_;
  SlotId slot_{-1};
  bool last_token_in_slot_ = false;
  int32_t computed_len_ = 0;
  int32_t tail_begin_ = 0;
  int32_t tail_end_ = 0;
  int32_t n_starts_ = 0;
  std::array<int32_t, 3> cached_{};   // tokens by TierKind, at the first start
  int32_t prompt_logprobs_done_ = 0;  // positions below have been reported
};

}  // namespace pagoda::engine
