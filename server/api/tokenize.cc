#include "server/api/tokenize.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "server/api/chat.h"
#include "server/api/errors.h"
#include "server/api/logprobs.h"
#include "server/api/prompt.h"

namespace pagoda::api {
namespace {

// What is taken of any model: a mebibyte of text, a mebi of ids. More if its context holds more.
constexpr int64_t kMinTextLimit = 1 << 20;
constexpr int64_t kMinIdsLimit = 1 << 20;
constexpr size_t kMaxDecodedBytes = 16 << 20;

size_t text_limit(const ServedModel& model) {
  return static_cast<size_t>(
      std::max(kMinTextLimit, int64_t{model.max_model_len} * model.max_token_bytes));
}

size_t ids_limit(const ServedModel& model) {
  return static_cast<size_t>(std::max<int64_t>(kMinIdsLimit, model.max_model_len));
}

absl::StatusOr<JsonBody> read_body(Context& context, std::string_view body,
                                   std::span<const std::string_view> known) {
  ASSIGN_OR_RETURN(JsonBody parsed, parse_object(body, known, context.limits.max_json_depth));
  context.warnings.warn(parsed.unknown);
  std::string model;
  RETURN_IF_ERROR(Fields(parsed.object).read("model", model, kMaxNameBytes));
  RETURN_IF_ERROR(check_model(context.model, model));
  return parsed;
}

using Answer = absl::StatusOr<std::string> (*)(Context&, std::string_view);

void answer_on_worker(Context& context, std::shared_ptr<http::Exchange> exchange, Answer answer) {
  const int64_t arrival_us = context.clock.now_us();
  run_on_worker(context, std::move(exchange),
                [&context, answer, arrival_us](const std::shared_ptr<http::Exchange>& self) {
                  auto body = answer(context, self->take_body());
                  log_answer(
                      context,
                      {.id = self->request().id,
                       .route = self->request().path,
                       .status = body.ok() ? 200 : error_kind(body.status().code()).http_status,
                       .total_us = context.clock.now_us() - arrival_us});
                  if (!body.ok()) return self->respond(error_response(body.status()));
                  self->respond({200, "application/json", *std::move(body), {}});
                });
}

}  // namespace

absl::StatusOr<std::vector<model::TokenId>> read_prompt_ids(Context& context, Json& object) {
  const Fields fields(object);
  if (fields.has("prompt") == fields.has("messages")) {
    return bad_field("prompt", "or messages is required, and not both");
  }
  std::vector<model::TokenId> ids;
  if (fields.has("prompt") && fields.find("prompt")->is_array()) {
    const Json& list = *fields.find("prompt");
    if (list.size() > ids_limit(context.model)) {
      return bad_field("prompt", "has {} ids; at most {} are taken", list.size(),
                       ids_limit(context.model));
    }
    return read_token_ids("prompt", list, context.tokenizer.n_vocab());
  }
  if (fields.has("prompt")) {
    std::string prompt;
    bool add_special = true;
    RETURN_IF_ERROR(fields.read("prompt", prompt, text_limit(context.model)));
    RETURN_IF_ERROR(fields.read("add_special_tokens", add_special));
    encode_text(context.tokenizer, prompt, add_special, ids);
    return ids;
  }
  ASSIGN_OR_RETURN(ChatInput chat, read_chat_input(object, context.limits.max_json_depth));
  const bool add_special_tokens = chat.add_special_tokens;
  ASSIGN_OR_RETURN(const model::RenderedText rendered, render_chat(context, std::move(chat)));
  if (rendered.text.size() > text_limit(context.model)) {
    return bad_field("messages", "have {} bytes once rendered; at most {} are taken",
                     rendered.text.size(), text_limit(context.model));
  }
  context.chat->encode(rendered, add_special_tokens, ids);
  return ids;
}

absl::StatusOr<std::string> tokenize(Context& context, std::string_view body) {
  static const std::vector<std::string_view> kKnown = [] {
    std::vector<std::string_view> names = chat_input_fields();
    names.insert(names.end(), {"model", "prompt", "return_token_strs"});
    return names;
  }();
  ASSIGN_OR_RETURN(JsonBody parsed, read_body(context, body, kKnown));
  bool return_strings = false;
  RETURN_IF_ERROR(Fields(parsed.object).read("return_token_strs", return_strings));
  ASSIGN_OR_RETURN(const std::vector<model::TokenId> ids, read_prompt_ids(context, parsed.object));
  Json json = {
      {"count", ids.size()}, {"max_model_len", context.model.max_model_len}, {"tokens", ids}};
  if (return_strings) {
    Json& strings = json["token_strs"] = Json::array();
    for (const model::TokenId id : ids) strings.push_back(shown_token(context.tokenizer, id));
  }
  return to_text(json);
}

absl::StatusOr<std::string> detokenize(Context& context, std::string_view body) {
  static constexpr std::array<std::string_view, 2> kKnown = {"model", "tokens"};
  ASSIGN_OR_RETURN(const JsonBody parsed, read_body(context, body, kKnown));
  const Json* tokens = Fields(parsed.object).find("tokens");
  if (tokens == nullptr) return bad_field("tokens", "is required");
  if (!tokens->is_array()) return bad_field("tokens", "must be a list, not {}", shown(*tokens));
  if (tokens->size() > ids_limit(context.model)) {
    return bad_field("tokens", "has {} ids; at most {} are taken", tokens->size(),
                     ids_limit(context.model));
  }
  ASSIGN_OR_RETURN(const std::vector<model::TokenId> ids,
                   read_token_ids("tokens", *tokens, context.tokenizer.n_vocab()));
  size_t n_bytes = 0;
  for (const model::TokenId id : ids) n_bytes += context.tokenizer.token_bytes(id).size();
  if (n_bytes > kMaxDecodedBytes) {
    return bad_field("tokens", "stand for {} bytes; at most {} are given", n_bytes,
                     kMaxDecodedBytes);
  }
  return to_text(Json{{"prompt", model::decode(context.tokenizer, ids, false)}});
}

void handle_tokenize(Context& context, std::shared_ptr<http::Exchange> exchange) {
  answer_on_worker(context, std::move(exchange), tokenize);
}

void handle_detokenize(Context& context, std::shared_ptr<http::Exchange> exchange) {
  answer_on_worker(context, std::move(exchange), detokenize);
}

}  // namespace pagoda::api
