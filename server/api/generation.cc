#include "server/api/generation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "server/api/errors.h"
#include "server/api/prompt.h"
#include "server/engine/output.h"

namespace pagoda::api {
namespace {

using engine::FinishReason;
using engine::OutputDelta;

// A request on its way: its choices run in the engine, their deltas come together here. Shared by
// the output streams of its choices, which live as long as the engine or a worker needs them.
class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  GenerationJob(Context& context, std::shared_ptr<http::Exchange> exchange,
                std::unique_ptr<Answer> answer, const Arrival& arrival);

  // On a worker. Submits every choice; answers by itself from here on.
  void start();

 private:
  struct Choice {
    std::vector<engine::TokenLogprob> prompt_logprobs;
    bool begun = false;
    FinishReason reason = FinishReason::kStop;
    engine::Usage usage;
  };

  engine::Request engine_request(size_t index);
  absl::Status submit_all(std::vector<engine::Request> requests);
  void cancel_all();

  // On output workers, one choice's deltas in order.
  void on_delta(size_t index, OutputDelta&& delta);
  void take_delta(size_t index, OutputDelta&& delta);
  void fail(const absl::Status& status);
  void complete();
  UsageTotals totals() const;
  void log(int status) const;

  Context& context_;
  const std::shared_ptr<http::Exchange> exchange_;
  const std::unique_ptr<Answer> answer_;
  const GenerationRequest& request_;
  const Arrival arrival_;
  std::vector<RequestId> ids_;  // [n_choices]; fixed before the first submit

  std::mutex mutex_;
  std::vector<Choice> choices_;  // guarded by mutex_, as all below and the answer's state
  size_t n_finished_ = 0;
  bool streaming_ = false;  // the head of a stream is out
  bool over_ = false;
  int64_t first_token_us_ = -1;
  std::atomic<bool> cancelled_{false};
};

GenerationJob::GenerationJob(Context& context, std::shared_ptr<http::Exchange> exchange,
                             std::unique_ptr<Answer> answer, const Arrival& arrival)
    : context_(context),
      exchange_(std::move(exchange)),
      answer_(std::move(answer)),
      request_(answer_->request()),
      arrival_(arrival),
      choices_(answer_->n_choices()) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    ids_.emplace_back(context_.next_request_id.fetch_add(1));
  }
}

engine::Request GenerationJob::engine_request(size_t index) {
  const Prompt& prompt = answer_->prompt_of(index);
  engine::Request request;
  request.id = ids_[index];
  request.group = ids_.front();
  request.prompt = prompt.ids;
  request.sampling = request_.sampling;
  const int64_t room = context_.model.max_model_len - std::ssize(prompt.ids);
  request.sampling.max_tokens = static_cast<int32_t>(std::min(request_.max_tokens, room));
  request.choice = static_cast<int32_t>(index % static_cast<size_t>(request_.n));
  request.arrival_us = arrival_.time_us;
  request.deadline_us = arrival_.time_us + context_.limits.request_timeout_us;
  request.tenant = request_.tenant;
  request.salt = request_.salt;
  request.session = request_.session;
  request.keep_priority = request_.keep_priority;
  request.keep_ttl_us = request_.keep_ttl_us;
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

void GenerationJob::start() {
  // Weak: the exchange, which keeps this, is kept by the job.
  exchange_->on_client_gone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) {
      self->cancelled_.store(true);
      self->cancel_all();
    }
  });
  std::vector<engine::Request> requests;  // made before the lock, as they may be large
  for (size_t i = 0; i < choices_.size(); ++i) requests.push_back(engine_request(i));
  // Deltas wait until the head is out.
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < answer_->n_choices(); i += static_cast<size_t>(request_.n)) {
    const Prompt& prompt = answer_->prompt_of(i);
    context_.log.prompt(exchange_->request().id, prompt.text, prompt.ids);
  }
  if (const absl::Status status = submit_all(std::move(requests)); !status.ok())
    return fail(status);
  if (request_.stream) {
    streaming_ = true;
    exchange_->begin_stream(
        {200, "text/event-stream; charset=utf-8", "", {{"Cache-Control", "no-cache"}}});
  }
}

absl::Status GenerationJob::submit_all(std::vector<engine::Request> requests) {
  for (engine::Request& request : requests) {
    if (cancelled_.load()) break;
    RETURN_IF_ERROR(context_.engine.submit(std::move(request)));
  }
  // The client may have left while this went on, when not all ids were known to the engine.
  if (cancelled_.load()) {
    cancel_all();
    return absl::CancelledError("the client has left");
  }
  return absl::OkStatus();
}

void GenerationJob::cancel_all() {
  for (const RequestId id : ids_) context_.engine.cancel(id);
}

void GenerationJob::on_delta(size_t index, OutputDelta&& delta) {
  std::lock_guard lock(mutex_);
  if (over_) return;
  try {
    take_delta(index, std::move(delta));
  } catch (const std::exception& error) {
    spdlog::error("{} failed inside: {}", exchange_->request().id, error.what());
    fail(absl::InternalError("the server failed while it wrote the answer"));
  }
}

void GenerationJob::take_delta(size_t index, OutputDelta&& delta) {
  Choice& choice = choices_[index];
  if (delta.finished && delta.reason == FinishReason::kError) return fail(delta.error);
  for (engine::TokenLogprob& logprob : delta.prompt_logprobs) {
    choice.prompt_logprobs.push_back(std::move(logprob));
  }
  if (first_token_us_ < 0 && !delta.tokens.empty()) first_token_us_ = context_.clock.now_us();
  const bool has_output = delta.finished || !delta.tokens.empty() || !delta.text.empty();
  if (!has_output) return;
  if (delta.finished) {
    choice.reason = delta.reason;
    choice.usage = delta.usage;
    ++n_finished_;
  }
  std::string events;
  if (!std::exchange(choice.begun, true)) {
    events = answer_->begin(index, std::exchange(choice.prompt_logprobs, {}));
  }
  events += answer_->add(index, std::move(delta));
  if (!events.empty()) exchange_->send(std::move(events));
  if (n_finished_ == choices_.size()) complete();
}

// With mutex_ held. The first error of a choice is the answer's.
void GenerationJob::fail(const absl::Status& status) {
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

void GenerationJob::complete() {
  over_ = true;
  if (exchange_->client_gone()) return log(499);
  std::string end = answer_->end(totals());
  if (request_.stream) {
    exchange_->send(std::move(end));
    exchange_->end_stream();
  } else {
    exchange_->respond({200, "application/json", std::move(end), {}});
  }
  log(200);
}

// Of the n answers to a prompt, the one that found the least in the cache has computed the rest for
// the others.
UsageTotals GenerationJob::totals() const {
  UsageTotals totals;
  const auto n = static_cast<size_t>(request_.n);
  for (size_t i = 0; i < choices_.size(); i += n) {
    totals.prompt_tokens += std::ssize(answer_->prompt_of(i).ids);
    const engine::Usage* least = &choices_[i].usage;
    for (size_t j = i; j < i + n; ++j) {
      if (choices_[j].usage.cached_tokens < least->cached_tokens) least = &choices_[j].usage;
      totals.completion_tokens += choices_[j].usage.completion_tokens;
    }
    totals.cached_tokens += least->cached_tokens;
    for (size_t tier = 0; tier < totals.cached_by_tier.size(); ++tier) {
      totals.cached_by_tier[tier] += least->cached_by_tier[tier];
    }
  }
  return totals;
}

void GenerationJob::log(int status) const {
  const UsageTotals usage = totals();
  const auto reason = status == 499   ? FinishReason::kAbort
                      : status != 200 ? FinishReason::kError
                                      : choices_.front().reason;
  log_answer(context_, {.id = exchange_->request().id,
                        .route = arrival_.route,
                        .status = status,
                        .n = request_.n,
                        .prompt_tokens = usage.prompt_tokens,
                        .cached_tokens = usage.cached_tokens,
                        .output_tokens = usage.completion_tokens,
                        .finish_reason = engine::finish_reason_name(reason),
                        .ttft_us = first_token_us_ < 0 ? -1 : first_token_us_ - arrival_.time_us,
                        .total_us = context_.clock.now_us() - arrival_.time_us});
}

}  // namespace

RequestLimits request_limits(const Context& context) {
  return {.n_vocab = context.tokenizer.n_vocab(),
          .max_json_depth = context.limits.max_json_depth,
          .max_choices = context.limits.max_choices,
          .max_model_len = context.model.max_model_len,
          .defaults = context.model.defaults};
}

absl::Status finish_request(Context& context, GenerationRequest& request) {
  context.warnings.warn(request.unknown_fields);
  RETURN_IF_ERROR(check_model(context.model, request.model));
  if (!request.has_seed) request.sampling.seed = context.random.next();
  request.sampling.bad_words = encode_bad_words(context.tokenizer, request.bad_words);
  return absl::OkStatus();
}

AnswerHead make_head(Context& context, const GenerationRequest& request, std::string_view prefix) {
  return {fmt::format("{}-{:016x}", prefix, context.random.next()),
          request.model.empty() ? context.model.names.front() : request.model,
          context.clock.unix_s()};
}

void start_generation(Context& context, std::shared_ptr<http::Exchange> exchange,
                      std::unique_ptr<Answer> answer, const Arrival& arrival) {
  // Shared, as said above.
  std::make_shared<GenerationJob>(context, std::move(exchange), std::move(answer), arrival)
      ->start();
}

void handle_generation(Context& context, std::shared_ptr<http::Exchange> exchange,
                       std::string_view route, MakeAnswer make_answer) {
  const Arrival arrival{route, context.clock.now_us()};
  run_on_worker(context, std::move(exchange),
                [&context, arrival, make_answer](const std::shared_ptr<http::Exchange>& self) {
                  auto answer = make_answer(context, *self);
                  if (answer.ok()) {
                    return start_generation(context, self, *std::move(answer), arrival);
                  }
                  log_answer(context, {.id = self->request().id,
                                       .route = arrival.route,
                                       .status = error_kind(answer.status().code()).http_status,
                                       .total_us = context.clock.now_us() - arrival.time_us});
                  self->respond(error_response(answer.status()));
                });
}

}  // namespace pagoda::api
