#include "server/engine/sequence.h"

#include <algorithm>
#include <utility>

namespace pagoda::engine {

Sequence::Sequence(SeqId id, Request request, const std::vector<TokenId>& end_ids)
    : id_(id),
      request_(std::move(request)),
      scope_{request_.salt, request_.adapter_key},
      prompt_len_(static_cast<int32_t>(request_.prompt.size())),
      tokens_(request_.prompt),
      sampler_(request_.sampling, end_ids, request_.prompt) {
  tokens_.reserve(tokens_.size() + static_cast<size_t>(request_.sampling.max_tokens));
}

void Sequence::append(TokenId token) {
  tokens_.push_back(token);
  sampler_.append(tokens_);
}

void Sequence::advance(int32_t n) {
  computed_len_ += n;
  CHECK_LE(computed_len_, has_tail() ? tail_begin_ : n_tokens());
  prompt_logprobs_done_ = std::max(prompt_logprobs_done_, std::min(computed_len_, prompt_len_));
}

bool Sequence::follow_restore(const std::optional<cache::RestoreView>& restore) {
  tail_begin_ = tail_end_ = 0;
  if (!restore) return false;
  CHECK(restore->begin >= computed_len_ && restore->begin <= restore->landed);
  CHECK(restore->begin < restore->end && restore->landed <= restore->end);
  CHECK_LT(restore->end, n_tokens());
  if (restore->landed == computed_len_) {
    advance(restore->end - computed_len_);
    return true;
  }
  tail_begin_ = restore->begin;
  tail_end_ = restore->end;
  return false;
}

void Sequence::add_restored(const std::array<int32_t, 3>& n_tokens) {
  if (was_preempted()) return;
  for (size_t i = 0; i < n_tokens.size(); ++i) cached_[i] += n_tokens[i];
}

ops::SampleRow Sequence::draw() const {
  ops::SampleRow row;
  sampler_.fill(row);
  row.choice = request_.choice;
  row.n_top = request_.sampling.n_logprobs;
  return row;
}

bool Sequence::wants_logprob(int32_t position) const {
  return request_.sampling.n_prompt_logprobs >= 0 && position >= prompt_logprobs_done_ &&
         position + 1 < prompt_len_;
}

ops::SampleRow Sequence::prompt_logprob(int32_t position) const {
  ops::SampleRow row;
  row.forced_token = tokens_[static_cast<size_t>(position) + 1];
  row.n_top = request_.sampling.n_prompt_logprobs;
  return row;
}

cache::UseCache Sequence::use_cache() const {
  if (request_.sampling.n_prompt_logprobs >= 0 && prompt_logprobs_done_ + 1 < prompt_len_) {
    return cache::UseCache::kNo;
  }
  return n_starts_ > 0 ? cache::UseCache::kRecompute : cache::UseCache::kYes;
}

void Sequence::hold(cache::PrefixLease lease) {
  CHECK(!lease_);
  lease_ = std::move(lease);
  state_ = SeqState::kRestoring;
  // What came up for a lease that it gave back is found where it is now.
  if (n_starts_ == 0) cached_ = {};
  computed_len_ = lease_.ready_len();
}

void Sequence::start(SlotId slot) {
  CHECK(lease_);
  slot_ = slot;
  state_ = SeqState::kRunning;
  last_token_in_slot_ = false;
  if (n_starts_++ > 0) return;
  cached_[static_cast<size_t>(cache::TierKind::kDevice)] = lease_.ready_len();
}

cache::PrefixLease Sequence::stop(SeqState state) {
  state_ = state;
  slot_ = SlotId(-1);
  computed_len_ = tail_begin_ = tail_end_ = 0;
  return std::move(lease_);
}

Usage Sequence::usage() const {
  const int32_t n_cached = cached_[0] + cached_[1] + cached_[2];
  return {prompt_len_, n_output(), n_cached, cached_};
}

}  // namespace pagoda::engine
