#include "server/api/context.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "server/api/errors.h"

namespace pagoda::api {

namespace {

void refuse(const Context& context, http::Exchange& exchange, const absl::Status& why) {
  log_answer(context, {.id = exchange.request().id,
                       .route = exchange.request().path,
                       .status = error_kind(why.code()).http_status});
  exchange.respond(error_response(why));
}

}  // namespace

void run_on_worker(Context& context, std::shared_ptr<http::Exchange> exchange, Work work) {
  if (!context.serving.load()) {
    return refuse(context, *exchange, absl::UnavailableError("the server is shutting down"));
  }
  auto task = [&context, exchange, work = std::move(work)]() mutable {
    if (exchange->client_gone()) {
      log_answer(context, {.id = exchange->request().id,
                           .route = exchange->request().path,
                           .status = error_kind(absl::StatusCode::kCancelled).http_status});
      return;
    }
    try {
      work(exchange);
    } catch (const std::exception& error) {
      spdlog::error("{} failed inside: {}", exchange->request().id, error.what());
    }
  };
  if (!context.workers.try_post(std::move(task))) {
    refuse(context, *exchange, absl::ResourceExhaustedError("too many requests wait to be parsed"));
  }
}

absl::Status check_model(const ServedModel& model, std::string_view name) {
  if (name.empty() || std::ranges::find(model.names, name) != model.names.end()) {
    return absl::OkStatus();
  }
  return with_code(with_param(base::status_error(absl::StatusCode::kNotFound,
                                                 "there is no model {} here; {} is served",
                                                 shown(nlohmann::json(name)), model.names.front()),
                              "model"),
                   "model_not_found");
}

void log_answer(const Context& context, const AnswerLog& answer) {
  context.log.answer(answer);
  if (answer.n > 0) context.telemetry.count_choices(answer.n);
}

}  // namespace pagoda::api
