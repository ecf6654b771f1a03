#include "server/api/completion_answer.h"

#include <algorithm>
#include <utility>

#include "server/api/prompt.h"

namespace pagoda::api {
namespace {

constexpr std::string_view kObject = "text_completion";

Json logprobs_json(const LogprobLists& lists) {
  Json values = Json::array();
  for (const auto& value : lists.token_logprobs) values.push_back(value ? Json(*value) : Json());
  Json tops = Json::array();
  for (const auto& top : lists.top_logprobs) {
    Json entry;
    if (top.has_value()) {
      entry = Json::object();
      for (const auto& [token, value] : *top) entry[token] = value;
    }
    tops.push_back(std::move(entry));
  }
  return {{"text_offset", lists.text_offset},
          {"token_logprobs", std::move(values)},
          {"tokens", lists.tokens},
          {"top_logprobs", std::move(tops)}};
}

}  // namespace

CompletionAnswer::CompletionAnswer(AnswerHead head, CompletionRequest request,
                                   const model::Tokenizer& tokenizer)
    : Answer(std::move(head), static_cast<GenerationRequest>(request), std::move(request.prompts),
             tokenizer),
      echo_(request.echo),
      add_special_tokens_(request.add_special_tokens) {
  for (size_t i = 0; i < n_choices(); ++i) {
    choices_.emplace_back(LogprobWriter(tokenizer, this->request().skip_special_tokens))
        .prompt_ids_due = this->request().return_token_ids;
  }
}

std::string CompletionAnswer::begin(size_t index,
                                    std::vector<engine::TokenLogprob> prompt_logprobs) {
  Choice& choice = choices_[index];
  if (echo_) {
    // One computation serves both lists, with as many alternatives as the longer one wants.
    std::vector<engine::TokenLogprob> echoed = prompt_logprobs;
    for (engine::TokenLogprob& logprob : echoed) {
      const auto n_top = static_cast<size_t>(std::max(0, request().sampling.n_logprobs));
      if (logprob.top.size() > n_top) logprob.top.resize(n_top);
    }
    echo_prompt(index, echoed);
  }
  if (request().prompt_logprobs) {
    choice.prompt_logprobs = std::move(prompt_logprobs);
  }
  return request().stream && !choice.text.empty() ? chunk(index) : std::string();
}

void CompletionAnswer::echo_prompt(size_t index,
                                   const std::vector<engine::TokenLogprob>& prompt_logprobs) {
  Choice& choice = choices_[index];
  const Prompt& prompt = prompt_of(index);
  const bool skip_special = request().skip_special_tokens;
  choice.text = prompt.is_text ? prompt.text : model::decode(tokenizer(), prompt.ids, skip_special);
  if (!request().logprobs) return;
  const bool bos_added =
      prompt.is_text && begins_with_bos(tokenizer().vocabulary(), add_special_tokens_);
  choice.logprobs.add_prompt(prompt.ids, bos_added ? 1 : 0, !prompt.is_text && skip_special,
                             prompt_logprobs);
}

std::string CompletionAnswer::add(size_t index, engine::OutputDelta&& delta) {
  Choice& choice = choices_[index];
  for (const engine::TokenLogprob& logprob : delta.logprobs) choice.logprobs.add(logprob);
  choice.text += delta.text;
  choice.n_tokens += std::ssize(delta.tokens);
  if (request().return_token_ids) append_token_ids(delta, choice.ids);
  if (delta.finished) choice.last = std::move(delta);
  const bool is_due = choice.last.has_value() || !choice.text.empty();
  return request().stream && is_due ? chunk(index) : std::string();
}

Json CompletionAnswer::take_choice(size_t index) {
  Choice& choice = choices_[index];
  const engine::OutputDelta* last = choice.last ? &*choice.last : nullptr;
  const LogprobLists lists = choice.logprobs.take();
  Json json = {{"index", index},
               {"text", std::exchange(choice.text, {})},
               {"logprobs", request().logprobs ? logprobs_json(lists) : Json()},
               {"finish_reason", finish_reason_json(last)},
               {"stop_reason", last == nullptr ? Json() : stop_reason_json(request(), *last)}};
  if (request().prompt_logprobs) {
    json["prompt_logprobs"] =
        prompt_logprobs_json(tokenizer(), std::exchange(choice.prompt_logprobs, {}));
  }
  if (std::exchange(choice.prompt_ids_due, false)) json["prompt_token_ids"] = prompt_of(index).ids;
  if (request().return_token_ids) json["token_ids"] = std::exchange(choice.ids, {});
  return json;
}

std::string CompletionAnswer::chunk(size_t index) {
  Json json = head_json(head(), kObject);
  json["choices"] = Json::array({take_choice(index)});
  add_chunk_usage(index, choices_[index].n_tokens, json);
  return event(json);
}

std::string CompletionAnswer::end(const UsageTotals& usage) {
  if (request().stream) return stream_end(kObject, usage);
  return whole_answer(head_json(head(), kObject), [this](size_t i) { return take_choice(i); },
                      choices_.size(), {{"usage", usage_json(usage)}});
}

}  // namespace pagoda::api
