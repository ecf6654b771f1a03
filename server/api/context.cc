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

void encode_text(const model::Tokenizer& tokenizer, std::string_view text, bool add_special,
                 std::vector<model::TokenId>& ids) {
  const model::Vocabulary& vocabulary = tokenizer.vocabulary();
  if (add_special && vocabulary.add_bos && vocabulary.bos >= 0) ids.push_back(vocabulary.bos);
  tokenizer.encode(text, model::SpecialTokens::kParse, ids);
}

absl::Status tokenize_text(const Context& context, std::string_view text, bool add_special,
                           std::vector<model::TokenId>& ids) {
  const ServedModel& model = context.model;
  const size_t least = text.size() / static_cast<size_t>(model.max_token_bytes);
  if (least > static_cast<size_t>(model.max_model_len)) {
    return with_code(
        bad_field("prompt", "has {} bytes, which is at least {} tokens; the context has {}",
                  text.size(), least, model.max_model_len),
        "context_length_exceeded");
  }
  encode_text(context.tokenizer, text, add_special, ids);
  return absl::OkStatus();
}

void log_answer(const AnswerLog& answer) {
  const std::string ttft =
      answer.ttft_us < 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(answer.ttft_us) / 1000);
  spdlog::info("{} {} {} prompt={} cached={} output={} ttft_ms={} total_ms={:.1f}", answer.id,
               answer.route, answer.status, answer.prompt_tokens, answer.cached_tokens,
               answer.output_tokens, ttft, static_cast<double>(answer.total_us) / 1000);
}

}  // namespace pagoda::api
