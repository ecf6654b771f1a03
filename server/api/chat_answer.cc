#include "server/api/chat_answer.h"

#include <utility>

#include "server/api/logprobs.h"

namespace pagoda::api {
namespace {

constexpr std::string_view kObject = "chat.completion";
constexpr std::string_view kChunkObject = "chat.completion.chunk";

// A token that is a part of a character has bytes of its own; its name is only shown.
Json token_json(const model::Tokenizer& tokenizer, TokenId id, float logprob) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_bytes(id)) bytes.push_back(static_cast<uint8_t>(byte));
  return {{"token", shown_token(tokenizer, id)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", std::move(bytes)}};
}

std::vector<Prompt> list_of(Prompt prompt) {
  std::vector<Prompt> prompts;
  prompts.push_back(std::move(prompt));
  return prompts;
}

}  // namespace

ChatAnswer::ChatAnswer(AnswerHead head, GenerationRequest request, Prompt prompt,
                       const model::Tokenizer& tokenizer)
    : Answer(std::move(head), std::move(request), list_of(std::move(prompt)), tokenizer),
      choices_(n_choices()),
      prompt_ids_due_(this->request().return_token_ids) {}

std::string ChatAnswer::begin(size_t index, std::vector<engine::TokenLogprob> prompt_logprobs) {
  if (request().prompt_logprobs && prompt_logprobs_.is_null()) {
    prompt_logprobs_ = prompt_logprobs_json(tokenizer(), prompt_logprobs);
  }
  return request().stream ? chunk(index, {{"role", "assistant"}, {"content", ""}}) : std::string();
}

std::string ChatAnswer::add(size_t index, engine::OutputDelta&& delta) {
  Choice& choice = choices_[index];
  for (engine::TokenLogprob& logprob : delta.logprobs) {
    choice.logprobs.push_back(std::move(logprob));
  }
  choice.text += delta.text;
  choice.n_tokens += std::ssize(delta.tokens);
  if (request().return_token_ids) append_token_ids(delta, choice.ids);
  if (delta.finished) choice.last = std::move(delta);
  if (!request().stream || (!choice.last && choice.text.empty())) return std::string();
  Json message = Json::object();
  if (!choice.text.empty()) message["content"] = std::exchange(choice.text, {});
  return chunk(index, std::move(message));
}

Json ChatAnswer::logprobs_json(const std::vector<engine::TokenLogprob>& logprobs) const {
  Json content = Json::array();
  for (const engine::TokenLogprob& logprob : logprobs) {
    Json entry = token_json(tokenizer(), logprob.token, logprob.logprob);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const auto& [id, value] : logprob.top) top.push_back(token_json(tokenizer(), id, value));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json ChatAnswer::take_choice(size_t index, std::string_view key, Json message) {
  Choice& choice = choices_[index];
  const engine::OutputDelta* last = choice.last ? &*choice.last : nullptr;
  // A chunk without tokens has no log probabilities, as the first of a stream.
  const bool has_logprobs = request().logprobs && (last != nullptr || !choice.logprobs.empty());
  const std::vector<engine::TokenLogprob> logprobs = std::exchange(choice.logprobs, {});
  Json json = {{"index", index},
               {key, std::move(message)},
               {"logprobs", has_logprobs ? logprobs_json(logprobs) : Json()},
               {"finish_reason", finish_reason_json(last)},
               {"stop_reason", last == nullptr ? Json() : stop_reason_json(request(), *last)}};
  if (request().return_token_ids) json["token_ids"] = std::exchange(choice.ids, {});
  return json;
}

std::string ChatAnswer::chunk(size_t index, Json delta) {
  Json json = head_json(head(), kChunkObject);
  json["choices"] = Json::array({take_choice(index, "delta", std::move(delta))});
  if (std::exchange(prompt_ids_due_, false)) json["prompt_token_ids"] = prompt_of(index).ids;
  add_chunk_usage(index, choices_[index].n_tokens, json);
  return event(json);
}

std::string ChatAnswer::end(const UsageTotals& usage) {
  if (request().stream) return stream_end(kChunkObject, usage);
  Json tail = {{"usage", usage_json(usage)}};
  if (request().prompt_logprobs) tail["prompt_logprobs"] = std::move(prompt_logprobs_);
  if (request().return_token_ids) tail["prompt_token_ids"] = prompt_of(0).ids;
  const auto choice = [this](size_t i) {
    Json message = {{"role", "assistant"},
                    {"content", std::exchange(choices_[i].text, {})},
                    {"refusal", nullptr}};
    return take_choice(i, "message", std::move(message));
  };
  return whole_answer(head_json(head(), kObject), choice, choices_.size(), tail);
}

}  // namespace pagoda::api
