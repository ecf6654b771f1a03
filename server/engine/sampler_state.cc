#include "server/engine/sampler_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace pagoda::engine {
namespace {

constexpr float kBan = -std::numeric_limits<float>::infinity();

bool has_penalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

std::vector<ops::TokenCount> prompt_counts(const SamplingParams& sampling,
                                           std::span<const TokenId> prompt) {
  std::vector<TokenId> ids;
  if (sampling.repetition_penalty != 1) ids.assign(prompt.begin(), prompt.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<ops::TokenCount> counts;
  counts.reserve(ids.size() + static_cast<size_t>(sampling.max_tokens));
  for (const TokenId id : ids) counts.push_back({id, 0});
  return counts;
}

}  // namespace

SamplerState::SamplerState(const SamplingParams& sampling, std::span<const TokenId> end_ids,
                           std::span<const TokenId> prompt)
    : sampling_(sampling), stop_ids_(sampling.stop_ids), bias_(sampling.logit_bias) {
  if (!sampling.ignore_eos) stop_ids_.insert(stop_ids_.end(), end_ids.begin(), end_ids.end());
  std::ranges::sort(stop_ids_);
  end_bans_ = sampling.stop_ids;
  end_bans_.insert(end_bans_.end(), end_ids.begin(), end_ids.end());
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (word.size() == 1) bias_.push_back({word[0], kBan});
  }
  n_lasting_bias_ = bias_.size();
  bias_.reserve(n_lasting_bias_ + end_bans_.size() + sampling.bad_words.size());
  if (has_penalties(sampling)) counts_ = prompt_counts(sampling, prompt);
  ban_for_next(prompt);
}

void SamplerState::append(std::span<const TokenId> tokens) {
  ++n_output_;
  if (has_penalties(sampling_)) {
    const TokenId token = tokens.back();
    auto at = std::ranges::lower_bound(counts_, token, {}, &ops::TokenCount::token);
    if (at == counts_.end() || at->token != token) at = counts_.insert(at, {token, 0});
    ++at->n_output;
  }
  ban_for_next(tokens);
}

void SamplerState::ban_for_next(std::span<const TokenId> tokens) {
  bias_.resize(n_lasting_bias_);
  if (n_output_ < sampling_.min_tokens) {
    for (const TokenId id : end_bans_) bias_.push_back({id, kBan});
  }
  for (const std::vector<TokenId>& word : sampling_.bad_words) {
    if (word.size() < 2 || word.size() - 1 > tokens.size()) continue;
    const std::span<const TokenId> before = std::span(word).first(word.size() - 1);
    if (std::ranges::equal(before, tokens.last(before.size()))) {
      bias_.push_back({word.back(), kBan});
    }
  }
}

bool SamplerState::is_stop(TokenId token) const {
  return n_output_ >= sampling_.min_tokens && std::ranges::binary_search(stop_ids_, token);
}

void SamplerState::fill(ops::SampleRow& row) const {
  row.temperature = sampling_.temperature;
  row.top_k = sampling_.top_k;
  row.top_p = sampling_.top_p;
  row.min_p = sampling_.min_p;
  row.seed = sampling_.seed;
  row.position = n_output_;
  row.allowed = sampling_.allowed_ids.data();
  row.n_allowed = static_cast<int32_t>(sampling_.allowed_ids.size());
  row.bias = bias_.data();
  row.n_bias = static_cast<int32_t>(bias_.size());
  row.counts = counts_.data();
  row.n_counts = static_cast<int32_t>(counts_.size());
  row.repetition_penalty = sampling_.repetition_penalty;
  row.frequency_penalty = sampling_.frequency_penalty;
  row.presence_penalty = sampling_.presence_penalty;
}

absl::Status check_drawable(const SamplingParams& sampling, std::span<const TokenId> end_ids,
                            int32_t n_vocab) {
  if (sampling.max_tokens == 0) return absl::OkStatus();
  std::vector<TokenId> banned;
  for (const ops::LogitBias& bias : sampling.logit_bias) {
    if (bias.value == kBan) banned.push_back(bias.token);
  }
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (word.size() == 1) banned.push_back(word[0]);
  }
  if (sampling.min_tokens > 0) {
    banned.insert(banned.end(), sampling.stop_ids.begin(), sampling.stop_ids.end());
    banned.insert(banned.end(), end_ids.begin(), end_ids.end());
  }
  std::ranges::sort(banned);
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  const auto is_free = [&](TokenId id) { return !std::ranges::binary_search(banned, id); };
  const bool any = sampling.allowed_ids.empty()
                       ? std::ssize(banned) < n_vocab
                       : std::ranges::any_of(sampling.allowed_ids, is_free);
  if (any) return absl::OkStatus();
  return base::invalid_argument(
      "no token may be drawn: bad_words, logit_bias and min_tokens together ban every token of {}",
      sampling.allowed_ids.empty() ? "the vocabulary" : "allowed_token_ids");
}

}  // namespace pagoda::engine
