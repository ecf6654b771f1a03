#include "server/api/context.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "server/api/errors.h"

namespace pagoda::api {

void run_on_worker(Context& context, std::shared_ptr<http::Exchange> exchange, Work work) {
  if (!context.serving.load()) {
    exchange->respond(error_response(absl::UnavailableError("the server is shutting down")));
    return;
  }
  auto task = [exchange, work = std::move(work)]() mutable {
    if (exchange->client_gone()) return;
    try {
      work(exchange);
    } catch (const std::exception& error) {
      spdlog::error("{} failed inside: {}", exchange->request().id, error.what());
    }
  };
  if (!context.workers.try_post(std::move(task))) {
    exchange->respond(
        error_response(absl::ResourceExhaustedError("too many requests wait to be parsed")));
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

void log_answer(const AnswerLog& answer) {
  const std::string ttft =
      answer.ttft_us < 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(answer.ttft_us) / 1000);
  spdlog::info("{} {} {} prompt={} cached={} output={} ttft_ms={} total_ms={:.1f}", answer.id,
               answer.route, answer.status, answer.prompt_tokens, answer.cached_tokens,
               answer.output_tokens, ttft, static_cast<double>(answer.total_us) / 1000);
}

}  // namespace pagoda::api
