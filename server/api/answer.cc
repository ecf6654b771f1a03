#include "server/api/answer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "server/api/errors.h"
#include "server/api/logprobs.h"

namespace pagoda::api {

Answer::Answer(AnswerHead head, GenerationRequest request, std::vector<Prompt> prompts,
               const model::Tokenizer& tokenizer)
    : head_(std::move(head)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      tokenizer_(tokenizer) {}

void Answer::add_chunk_usage(size_t choice, int64_t n_completion_tokens, Json& chunk) const {
  if (!request_.include_usage) return;
  Json& usage = chunk["usage"];
  if (!request_.continuous_usage) return;
  const int64_t prompt_len = std::ssize(prompt_of(choice).ids);
  usage = {{"prompt_tokens", prompt_len},
           {"completion_tokens", n_completion_tokens},
           {"total_tokens", prompt_len + n_completion_tokens}};
}

std::string Answer::stream_end(std::string_view object, const UsageTotals& usage) const {
  if (!request_.include_usage) return std::string(kDoneEvent);
  Json json = head_json(head_, object);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return event(json).append(kDoneEvent);
}

Json head_json(const AnswerHead& head, std::string_view object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created_s}, {"model", head.model}};
}

Json usage_json(const UsageTotals& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"pagoda",
           {{"device", usage.cached_by_tier[0]},
            {"host", usage.cached_by_tier[1]},
            {"ssd", usage.cached_by_tier[2]},
            {"remote", 0},
            {"computed", usage.prompt_tokens - usage.cached_tokens}}}};
}

Json finish_reason_json(const engine::OutputDelta* last) {
  return last == nullptr ? Json() : Json(engine::finish_reason_name(last->reason));
}

Json stop_reason_json(const GenerationRequest& request, const engine::OutputDelta& last) {
  if (last.matched_stop >= 0) return request.stop[static_cast<size_t>(last.matched_stop)];
  const auto ids = std::span(request.sampling.stop_ids).first(request.n_stop_token_ids);
  const bool is_stop_id = std::ranges::find(ids, last.stop_token) != ids.end();
  return is_stop_id ? Json(last.stop_token) : Json();
}

Json prompt_logprobs_json(const model::Tokenizer& tokenizer,
                          const std::vector<engine::TokenLogprob>& logprobs) {
  Json list = Json::array({nullptr});
  const auto add = [&](Json& entry, TokenId id, float logprob, int32_t rank) {
    entry[std::to_string(id)] = {{"logprob", finite_logprob(logprob)},
                                 {"rank", rank},
                                 {"decoded_token", shown_token(tokenizer, id)}};
  };
  for (const engine::TokenLogprob& logprob : logprobs) {
    Json entry = Json::object();
    add(entry, logprob.token, logprob.logprob, logprob.rank);
    for (size_t i = 0; i < logprob.top.size(); ++i) {
      if (logprob.top[i].first == logprob.token) continue;
      add(entry, logprob.top[i].first, logprob.top[i].second, static_cast<int32_t>(i) + 1);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

void append_token_ids(const engine::OutputDelta& delta, std::vector<TokenId>& ids) {
  ids.insert(ids.end(), delta.tokens.begin(), delta.tokens.end());
  if (delta.stop_token >= 0) ids.push_back(delta.stop_token);
}

std::string whole_answer(const Json& head, const std::function<Json(size_t)>& take_choice,
                         size_t n_choices, const Json& tail) {
  std::string text = to_text(head);
  text.pop_back();  // its closing brace
  text += ",\"choices\":[";
  for (size_t i = 0; i < n_choices; ++i) {
    if (i > 0) text += ',';
    text += to_text(take_choice(i));
  }
  return text + "]," + to_text(tail).substr(1);
}

std::string event(const Json& json) { return "data: " + to_text(json) + "\n\n"; }

std::string error_event(const absl::Status& status) {
  return "data: " + error_body(status) + "\n\n";
}

}  // namespace pagoda::api
