#include "server/api/completions.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "server/api/completion_json.h"
#include "server/api/completion_request.h"
#include "server/api/errors.h"
#include "server/api/logprobs.h"
#include "server/engine/output.h"

namespace pagoda::api {
namespace {

using engine::FinishReason;
using engine::OutputDelta;

// A request on its way: its choices run in the engine, their deltas come together here. Shared by
// the output streams of its choices, which live as long as the engine or a worker needs them.
class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  CompletionJob(Context& context, std::shared_ptr<http::Exchange> exchange,
                CompletionRequest request, int64_t arrival_us);

  // On a worker. Submits every choice; answers by itself from here on.
  void start();

 private:
  struct Choice {
    explicit Choice(LogprobWriter logprobs_in) : logprobs(std::move(logprobs_in)) {}
    std::string text;
    LogprobWriter logprobs;
    std::vector<engine::TokenLogprob> prompt_logprobs;
    bool echo_due = false;  // the prompt's text is still to be said
    bool finished = false;
    FinishReason reason = FinishReason::kStop;
    engine::Usage usage;
  };

  const Prompt& prompt_of(size_t choice) const {
    return request_.prompts[choice / static_cast<size_t>(request_.n)];
  }
  engine::Request engine_request(size_t index);
  absl::Status submit_all();
  void cancel_all();

  // On output workers, one choice's deltas in order.
  void on_delta(size_t index, OutputDelta&& delta);
  void take_delta(size_t index, OutputDelta&& delta);
  void say_prompt(size_t index);
  void send_chunk(size_t index, bool is_last);
  void fail(const absl::Status& status);
  void complete();
  UsageTotals totals() const;
  void log(int status) const;

  Context& context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const CompletionRequest request_;
  const int64_t arrival_us_;
  CompletionHead head_;
  std::vector<RequestId> ids_;  // [n_choices]; fixed before the first submit

  std::mutex mutex_;
  std::vector<Choice> choices_;  // guarded by mutex_, as all below
  size_t n_finished_ = 0;
  bool streaming_ = false;  // the head of a stream is out
  bool over_ = false;
  int64_t first_token_us_ = -1;
  std::atomic<bool> cancelled_{false};
};

CompletionJob::CompletionJob(Context& context, std::shared_ptr<http::Exchange> exchange,
                             CompletionRequest request, int64_t arrival_us)
    : context_(context),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      arrival_us_(arrival_us),
      head_{fmt::format("cmpl-{:016x}", context.random.next()),
            request_.model.empty() ? context.model.names.front() : request_.model,
            context.clock.unix_s()} {
  const size_t n_choices = request_.prompts.size() * static_cast<size_t>(request_.n);
  for (size_t i = 0; i < n_choices; ++i) {
    ids_.emplace_back(context_.next_request_id.fetch_add(1));
    Choice& choice =
        choices_.emplace_back(LogprobWriter(context_.tokenizer, request_.skip_special_tokens));
    choice.echo_due = request_.echo;
  }
}

engine::Request CompletionJob::engine_request(size_t index) {
  const Prompt& prompt = prompt_of(index);
  engine::Request request;
  request.id = ids_[index];
  request.group = ids_.front();
  request.prompt = prompt.ids;
  request.sampling = request_.sampling;
  const int64_t room = context_.model.max_model_len - std::ssize(prompt.ids);
  request.sampling.max_tokens = static_cast<int32_t>(std::min(request_.max_tokens, room));
  request.choice = static_cast<int32_t>(index % static_cast<size_t>(request_.n));
  request.arrival_us = arrival_us_;
  request.deadline_us = arrival_us_ + context_.limits.request_timeout_us;
  request.tenant = request_.tenant;
  request.salt = request_.salt;
  request.session = request_.session;
  request.priority = request_.priority;
  request.sink = engine::OutputStream::create(
      context_.tokenizer, context_.outputs,
      {.stop = request_.stop,
       .include_stop = request_.include_stop_str_in_output,
       .skip_special = request_.skip_special_tokens,
       .logprobs = request_.logprobs},
      [self = shared_from_this(), index](OutputDelta&& delta) {
        self->on_delta(index, std::move(delta));
      },
      [&engine = context_.engine, id = request.id] { engine.cancel(id, FinishReason::kStop); });
  return request;
}

void CompletionJob::start() {
  // Weak: the exchange, which keeps this, is kept by the job.
  exchange_->on_client_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->cancelled_.store(true);
      self->cancel_all();
    }
  });
  // Deltas wait until the head is out.
  std::lock_guard lock(mutex_);
  for (const Prompt& prompt : request_.prompts) {
    context_.log.prompt(exchange_->request().id, prompt.is_text ? prompt.text : "", prompt.ids);
  }
  if (const absl::Status status = submit_all(); !status.ok()) return fail(status);
  if (request_.stream) {
    streaming_ = true;
    exchange_->begin_stream(
        {200, "text/event-stream; charset=utf-8", "", {{"Cache-Control", "no-cache"}}});
  }
}

absl::Status CompletionJob::submit_all() {
  for (size_t i = 0; i < choices_.size() && !cancelled_.load(); ++i) {
    RETURN_IF_ERROR(context_.engine.submit(engine_request(i)));
  }
  // The client may have left while this went on, when not all ids were known to the engine.
  if (cancelled_.load()) {
    cancel_all();
    return absl::CancelledError("the client has left");
  }
  return absl::OkStatus();
}

void CompletionJob::cancel_all() {
  for (const RequestId id : ids_) context_.engine.cancel(id);
}

void CompletionJob::on_delta(size_t index, OutputDelta&& delta) {
  std::lock_guard lock(mutex_);
  if (over_) return;
  try {
    take_delta(index, std::move(delta));
  } catch (const std::exception& error) {
    spdlog::error("{} failed inside: {}", exchange_->request().id, error.what());
    over_ = true;
    cancel_all();
  }
}

void CompletionJob::take_delta(size_t index, OutputDelta&& delta) {
  Choice& choice = choices_[index];
  if (delta.finished && delta.reason == FinishReason::kError) return fail(delta.error);
  for (engine::TokenLogprob& logprob : delta.prompt_logprobs) {
    choice.prompt_logprobs.push_back(std::move(logprob));
  }
  if (first_token_us_ < 0 && !delta.tokens.empty()) first_token_us_ = context_.clock.now_us();
  const bool has_output = delta.finished || !delta.tokens.empty() || !delta.text.empty();
  if (!has_output) return;
  if (choice.echo_due) say_prompt(index);
  for (const engine::TokenLogprob& logprob : delta.logprobs) choice.logprobs.add(logprob);
  choice.text += delta.text;
  if (delta.finished) {
    choice.finished = true;
    choice.reason = delta.reason;
    choice.usage = delta.usage;
    ++n_finished_;
  }
  if (request_.stream && (delta.finished || !choice.text.empty())) {
    send_chunk(index, delta.finished);
  }
  if (n_finished_ == choices_.size()) complete();
}

// The prompt's text and log probabilities come first, in a chunk of their own in a stream.
void CompletionJob::say_prompt(size_t index) {
  Choice& choice = choices_[index];
  const Prompt& prompt = prompt_of(index);
  choice.echo_due = false;
  choice.text = prompt.is_text
                    ? prompt.text
                    : model::decode(context_.tokenizer, prompt.ids, request_.skip_special_tokens);
  if (request_.logprobs) {
    const model::Vocabulary& vocabulary = context_.tokenizer.vocabulary();
    const bool bos_added =
        prompt.is_text && request_.add_special_tokens && vocabulary.add_bos && vocabulary.bos >= 0;
    choice.logprobs.add_prompt(prompt.ids, bos_added ? 1 : 0,
                               !prompt.is_text && request_.skip_special_tokens,
                               choice.prompt_logprobs);
    choice.prompt_logprobs = {};
  }
  if (request_.stream && !choice.text.empty()) send_chunk(index, false);
}

void CompletionJob::send_chunk(size_t index, bool is_last) {
  Choice& choice = choices_[index];
  const LogprobLists lists = choice.logprobs.take();
  ChoiceView view{static_cast<int32_t>(index), choice.text, request_.logprobs ? &lists : nullptr,
                  std::nullopt};
  if (is_last) view.finish_reason = choice.reason;
  exchange_->send(chunk_event(head_, view, request_.include_usage));
  choice.text.clear();
}

// With mutex_ held. The first error of a choice is the answer's.
void CompletionJob::fail(const absl::Status& status) {
  over_ = true;
  cancel_all();
  if (streaming_) {
    exchange_->send(error_event(status));
    exchange_->end_stream();
  } else {
    exchange_->respond(error_response(status));
  }
  log(error_kind(status.code()).http_status);
}

void CompletionJob::complete() {
  over_ = true;
  if (request_.stream) {
    std::string last;
    if (request_.include_usage) last = usage_event(head_, totals());
    last += kDoneEvent;
    exchange_->send(std::move(last));
    exchange_->end_stream();
  } else {
    std::vector<ChoiceView> views;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const Choice& choice = choices_[i];
      views.push_back({static_cast<int32_t>(i), choice.text,
                       request_.logprobs ? &choice.logprobs.lists() : nullptr, choice.reason});
    }
    exchange_->respond({200, "application/json", completion_json(head_, views, totals()), {}});
  }
  log(exchange_->client_gone() ? 499 : 200);
}

// Of the n answers to a prompt, the one that found the least in the cache has computed the rest for
// the others.
UsageTotals CompletionJob::totals() const {
  UsageTotals totals;
  const auto n = static_cast<size_t>(request_.n);
  for (size_t i = 0; i < choices_.size(); i += n) {
    totals.prompt_tokens += std::ssize(prompt_of(i).ids);
    int32_t cached = choices_[i].usage.cached_tokens;
    for (size_t j = i; j < i + n; ++j) {
      cached = std::min(cached, choices_[j].usage.cached_tokens);
      totals.completion_tokens += choices_[j].usage.completion_tokens;
    }
    totals.cached_tokens += cached;
  }
  return totals;
}

void CompletionJob::log(int status) const {
  const UsageTotals usage = totals();
  const auto reason = status == 499   ? FinishReason::kAbort
                      : status != 200 ? FinishReason::kError
                                      : choices_.front().reason;
  log_answer(context_, {.id = exchange_->request().id,
                        .route = "/v1/completions",
                        .status = status,
                        .n = request_.n,
                        .prompt_tokens = usage.prompt_tokens,
                        .cached_tokens = usage.cached_tokens,
                        .output_tokens = usage.completion_tokens,
                        .finish_reason = engine::finish_reason_name(reason),
                        .ttft_us = first_token_us_ < 0 ? -1 : first_token_us_ - arrival_us_,
                        .total_us = context_.clock.now_us() - arrival_us_});
}

// Turns the texts of the prompts into ids and checks that prompt and answer fit the context.
absl::Status tokenize_prompts(const Context& context, const http::Exchange& exchange,
                              CompletionRequest& request) {
  const int64_t max_len = context.model.max_model_len;
  const int64_t min_tokens = request.sampling.min_tokens;
  for (Prompt& prompt : request.prompts) {
    if (exchange.client_gone()) return absl::CancelledError("the client has left");
    if (prompt.is_text) {
      RETURN_IF_ERROR(tokenize_text(context, prompt.text, request.add_special_tokens, prompt.ids));
    }
    const int64_t prompt_len = std::ssize(prompt.ids);
    if (prompt_len == 0) return bad_field("prompt", "must have at least one token");
    const int64_t wanted =
        request.has_max_tokens ? request.max_tokens : std::max<int64_t>(1, min_tokens);
    if (prompt_len > max_len || wanted > max_len - prompt_len) {
      const std::string_view cause = prompt_len >= max_len    ? "prompt"
                                     : request.has_max_tokens ? "max_tokens"
                                                              : "min_tokens";
      return with_code(
          with_param(base::invalid_argument(
                         "the context has {} tokens, and the request needs more: {} in the prompt "
                         "and {} for the answer",
                         max_len, prompt_len, wanted),
                     cause),
          "context_length_exceeded");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CompletionRequest> read_request(Context& context, http::Exchange& exchange) {
  const CompletionLimits limits{.n_vocab = context.tokenizer.n_vocab(),
                                .max_json_depth = context.limits.max_json_depth,
                                .max_choices = context.limits.max_choices,
                                .max_model_len = context.model.max_model_len};
  ASSIGN_OR_RETURN(CompletionRequest request, parse_completion(exchange.take_body(), limits));
  context.warnings.warn(request.unknown_fields);
  RETURN_IF_ERROR(check_model(context.model, request.model));
  RETURN_IF_ERROR(tokenize_prompts(context, exchange, request));
  if (!request.has_seed) request.sampling.seed = context.random.next();
  return request;
}

}  // namespace

void handle_completions(Context& context, std::shared_ptr<http::Exchange> exchange) {
  const int64_t arrival_us = context.clock.now_us();
  run_on_worker(
      context, std::move(exchange),
      [&context, arrival_us](const std::shared_ptr<http::Exchange>& self) {
        auto request = read_request(context, *self);
        if (!request.ok()) {
          log_answer(context, {.id = self->request().id,
                               .route = "/v1/completions",
                               .status = error_kind(request.status().code()).http_status,
                               .total_us = context.clock.now_us() - arrival_us});
          return self->respond(error_response(request.status()));
        }
        std::make_shared<CompletionJob>(context, self, *std::move(request), arrival_us)->start();
      });
}

}  // namespace pagoda::api
