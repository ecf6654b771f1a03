#include "server/engine/output.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace pagoda::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& stop : stops) {
    Pattern& pattern = patterns_.emplace_back();
    pattern.text = std::move(stop);
    pattern.borders.assign(pattern.text.size(), 0);
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      pattern.borders[i] = pattern.longer(pattern.borders[i - 1], pattern.text[i]);
    }
  }
}

// The longest beginning that matches once `next` follows one of `len` bytes (Knuth, Morris and
// Pratt 1977).
size_t StopMatcher::Pattern::longer(size_t len, char next) const {
  while (len > 0 && text[len] != next) len = borders[len - 1];
  return text[len] == next ? len + 1 : 0;
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  size_t n_held = 0;  // of the end of held_, what a stop string begins with
  for (const char byte : text) {
    held_ += byte;
    n_held = 0;
    size_t match_len = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      pattern.matched = pattern.longer(pattern.matched, byte);
      n_held = std::max(n_held, pattern.matched);
      if (pattern.matched == pattern.text.size() && pattern.matched > match_len) {
        match_len = pattern.matched;
        matched_ = static_cast<int32_t>(i);
      }
    }
    if (stopped()) {
      held_.resize(held_.size() - (include_stop_ ? 0 : match_len));
      return std::exchange(held_, {});
    }
  }
  if (text.empty()) return {};
  std::string out = held_.substr(0, held_.size() - n_held);
  held_.erase(0, held_.size() - n_held);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

std::shared_ptr<OutputStream> OutputStream::create(const model::Tokenizer& tokenizer,
                                                   base::WorkerPool& pool, OutputOptions options,
                                                   OnDelta on_delta, Cancel cancel) {
  // Shared: the engine holds it as the request's sink and a worker while it runs.
  return std::shared_ptr<OutputStream>(new OutputStream(tokenizer, pool, std::move(options),
                                                        std::move(on_delta), std::move(cancel)));
}

OutputStream::OutputStream(const model::Tokenizer& tokenizer, base::WorkerPool& pool,
                           OutputOptions options, OnDelta on_delta, Cancel cancel)
    : pool_(pool),
      options_(std::move(options)),
      on_delta_(std::move(on_delta)),
      cancel_(std::move(cancel)),
      detokenizer_(tokenizer, options_.skip_special),
      stop_(options_.stop, options_.include_stop) {}

void OutputStream::push_together(std::span<TokenEvent> events) {
  {
    std::lock_guard lock(mutex_);
    std::ranges::move(events, std::back_inserter(events_));
    if (scheduled_) return;
    scheduled_ = true;
  }
  CHECK(pool_.try_post([self = shared_from_this()] { self->work(); }));
}

void OutputStream::work() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      taken_.clear();
      std::swap(taken_, events_);
      if (taken_.empty()) {
        scheduled_ = false;
        return;
      }
    }
    if (finished_) continue;
    OutputDelta delta;
    for (TokenEvent& event : taken_) {
      if (!finished_) handle(std::move(event), delta);
    }
    on_delta_(std::move(delta));
  }
}

void OutputStream::handle(TokenEvent&& event, OutputDelta& delta) {
  const auto logprob_of = [](const ops::SampleResult& result) {
    TokenLogprob logprob{result.token, result.logprob, {}, result.rank};
    for (int32_t i = 0; i < result.n_top; ++i) {
      logprob.top.emplace_back(result.top_tokens[i], result.top_logprobs[i]);
    }
    return logprob;
  };
  switch (event.kind) {
    case TokenEvent::Kind::kPrompt:
      delta.prompt_logprobs.push_back(logprob_of(event.result));
      return;
    case TokenEvent::Kind::kToken:
      ++n_completion_tokens_;
      delta.usage = event.usage;
      delta.tokens.push_back(event.result.token);
      if (options_.logprobs) delta.logprobs.push_back(logprob_of(event.result));
      delta.text += stop_.push(detokenizer_.push(event.result.token));
      if (stop_.stopped()) {
        cancel_();
        finished_ = delta.finished = true;
        delta.reason = FinishReason::kStop;
        delta.matched_stop = stop_.matched();
        delta.usage.completion_tokens = n_completion_tokens_;
      }
      return;
    case TokenEvent::Kind::kFinish:
      // A character that was left unfinished can still complete a stop string.
      delta.text += stop_.push(detokenizer_.finish());
      delta.text += stop_.finish();
      finished_ = delta.finished = true;
      delta.matched_stop = stop_.matched();
      delta.stop_token = stop_.stopped() ? -1 : event.stop_token;
      delta.reason = stop_.stopped() ? FinishReason::kStop : event.reason;
      delta.usage = event.usage;
      delta.error = std::move(event.error);
      return;
  }
}

}  // namespace pagoda::engine
