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
  if (has_tail() && computed_len_ == tail_begin_) {
    computed_len_ = tail_end_;
    tail_begin_ = tail_end_ = 0;
  }
  prompt_logprobs_done_ = std::max(prompt_logprobs_done_, std::min(computed_len_, prompt_len_));
}

void Sequence::grow_tail(int32_t begin, int32_t end) {
  CHECK(begin >= computed_len_ && begin < end && end < n_tokens());
  if (has_tail()) {
    CHECK_EQ(end, tail_begin_);
  } else {
    tail_end_ = end;
  }
  tail_begin_ = begin;
  advance(0);
}

void Sequence::cut_tail(int32_t end) {
  CHECK(has_tail() && end > tail_begin_ && end <= tail_end_);
  tail_begin_ = end;
  if (tail_begin_ == tail_end_) tail_begin_ = tail_end_ = 0;
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
  return started_ ? cache::UseCache::kRecompute : cache::UseCache::kYes;
}

void Sequence::start(cache::PrefixLease lease, SlotId slot) {
  CHECK(!lease_);
  lease_ = std::move(lease);
  slot_ = slot;
  state_ = SeqState::kRunning;
  computed_len_ = lease_.ready_len();
  last_token_in_slot_ = false;
  if (!started_) cached_len_ = computed_len_;
  started_ = true;
}

cache::PrefixLease Sequence::stop(SeqState state) {
  state_ = state;
  slot_ = SlotId(-1);
  computed_len_ = tail_begin_ = tail_end_ = 0;
  return std::move(lease_);
}

Usage Sequence::usage() const { return {prompt_len_, n_output(), cached_len_}; }

}  // namespace pagoda::engine
