#include "server/engine/output.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace pagoda::engine {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  if (stops_.empty()) return std::string(text);
  // held_ holds no whole match, so a match ends within `text`.
  const size_t old_size = held_.size();
  held_ += text;
  size_t best_end = std::string::npos;
  size_t best_begin = std::string::npos;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const std::string& stop = stops_[i];
    const size_t from = old_size >= stop.size() ? old_size - stop.size() + 1 : 0;
    const size_t begin = held_.find(stop, from);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_end = end;
      best_begin = begin;
      matched_ = static_cast<int32_t>(i);
    }
  }
  if (stopped()) {
    std::string out = held_.substr(0, include_stop_ ? best_end : best_begin);
    held_.clear();
    return out;
  }
  // Keep the longest end of the text that a stop string begins with.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) {
        keep = n;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
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
