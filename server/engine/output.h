// From token events to text: the detokenizer and the stop strings of one answer, run on a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/worker_pool.h"
#include "model/tokenizer/detokenizer.h"
#include "server/engine/request.h"

namespace pagoda::engine {

// Finds stop strings in text that arrives in pieces, whatever the cuts. One thread.
class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include_stop);

  // Appends `text` and returns what can no longer be part of a stop string. When one is complete,
  // returns what stands before it (and the stop string itself with include_stop) and stopped() is
  // true: the earliest completed match wins, of those the one that begins first.
  std::string push(std::string_view text);
  // No more text comes: the rest that was held back.
  std::string finish();
  bool stopped() const { return matched_ >= 0; }
  // Which of the stop strings it was; -1: none yet.
  int32_t matched() const { return matched_; }

 private:
  struct Pattern {
    size_t longer(size_t len, char next) const;

    std::string text;             // never empty
    std::vector<size_t> borders;  // [text.size()]: of its first i + 1 bytes, the longest end that
                                  // it begins with
    size_t matched = 0;           // of its beginning, at the end of the text so far
  };

  std::vector<Pattern> patterns_;
  const bool include_stop_;
  std::string held_;
  int32_t matched_ = -1;
};

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;
  int32_t rank = 0;  // 1: no token is likelier
};

// A piece of an answer. Deltas of one answer come in order and never at the same time.
struct OutputDelta {
  std::string text;  // valid UTF-8
  // Output tokens since the last delta. The text of the last ones may still be held back; when a
  // stop string cuts the answer they go up to the one that completes it, though its text does not.
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> prompt_logprobs;  // of the prompt's second token and those after it
  std::vector<TokenLogprob> logprobs;         // one for each of `tokens`, if wanted
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  // What ended the answer, when reason is kStop: at most one of the two.
  TokenId stop_token = -1;    // an end id or stop id that was drawn
  int32_t matched_stop = -1;  // index in OutputOptions::stop
  Usage usage;                // when finished
  absl::Status error;         // when reason is kError
};

struct OutputOptions {
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  bool logprobs = false;
};

// The sink of one sequence. push() is the engine thread's; the rest runs on a worker of the pool,
// one at a time. When a stop string is found the stream cancels its sequence by `cancel`, finishes
// with kStop and ignores what still arrives.
class OutputStream final : public TokenSink, public std::enable_shared_from_this<OutputStream> {
 public:
  using OnDelta = absl::AnyInvocable<void(OutputDelta&&)>;
  using Cancel = absl::AnyInvocable<void()>;

  // The pool's queue must have room for every stream that lives at once.
  static std::shared_ptr<OutputStream> create(const model::Tokenizer& tokenizer,
                                              base::WorkerPool& pool, OutputOptions options,
                                              OnDelta on_delta, Cancel cancel);
  void push(TokenEvent&& event) override { push_together({&event, 1}); }
  // They come in one delta.
  void push_together(std::span<TokenEvent> events) override;

 private:
  OutputStream(const model::Tokenizer& tokenizer, base::WorkerPool& pool, OutputOptions options,
               OnDelta on_delta, Cancel cancel);
  void work();
  void handle(TokenEvent&& event, OutputDelta& delta);

  base::WorkerPool& pool_;
  const OutputOptions options_;
  OnDelta on_delta_;
  Cancel cancel_;

  std::mutex mutex_;
  std::vector<TokenEvent> events_;  // guarded by mutex_
  bool scheduled_ = false;          // guarded by mutex_: a worker runs or will run work()

  // The worker's alone.
  std::vector<TokenEvent> taken_;
  model::Detokenizer detokenizer_;
  StopMatcher stop_;
  int32_t n_completion_tokens_ = 0;
  bool finished_ = false;
};

}  // namespace pagoda::engine
