#include "server/api/completion_json.h"

#include "server/api/errors.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

using Json = nlohmann::ordered_json;

std::string event(const Json& json) { return "data: " + to_text(json) + "\n\n"; }

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

Json choice_json(const ChoiceView& choice) {
  return {{"index", choice.index},
          {"text", choice.text},
          {"logprobs", choice.logprobs == nullptr ? Json() : logprobs_json(*choice.logprobs)},
          {"finish_reason",
           choice.finish_reason ? Json(engine::finish_reason_name(*choice.finish_reason)) : Json()},
          {"stop_reason", nullptr}};
}

Json usage_json(const UsageTotals& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"pagoda",
           {{"device", usage.cached_tokens},
            {"host", 0},
            {"ssd", 0},
            {"remote", 0},
            {"computed", usage.prompt_tokens - usage.cached_tokens}}}};
}

Json head_json(const CompletionHead& head) {
  return {{"id", head.id},
          {"object", "text_completion"},
          {"created", head.created_s},
          {"model", head.model}};
}

}  // namespace

std::string completion_json(const CompletionHead& head, const std::vector<ChoiceView>& choices,
                            const UsageTotals& usage) {
  Json json = head_json(head);
  json["choices"] = Json::array();
  for (const ChoiceView& choice : choices) json["choices"].push_back(choice_json(choice));
  json["usage"] = usage_json(usage);
  return to_text(json);
}

std::string chunk_event(const CompletionHead& head, const ChoiceView& choice, bool with_usage) {
  Json json = head_json(head);
  json["choices"] = Json::array();
  json["choices"].push_back(choice_json(choice));
  if (with_usage) json["usage"] = nullptr;
  return event(json);
}

std::string usage_event(const CompletionHead& head, const UsageTotals& usage) {
  Json json = head_json(head);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return event(json);
}

std::string error_event(const absl::Status& status) {
  return "data: " + error_body(status) + "\n\n";
}

}  // namespace pagoda::api
