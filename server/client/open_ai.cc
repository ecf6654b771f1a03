#include "server/client/open_ai.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace pagoda::client {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 200;

// Null when the text is no JSON.
Json parse(std::string_view text) { return Json::parse(text, nullptr, false); }

const Json* find(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto it = json.find(name);
  return it == json.end() || it->is_null() ? nullptr : &*it;
}
std::string text_at(const Json* json, const char* name) {
  const Json* value = json == nullptr ? nullptr : find(*json, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}
// Counts of tokens, within what can be added up without a thought.
int64_t number_at(const Json* json, const char* name, int64_t otherwise) {
  constexpr double kMost = 1e12;
  const Json* value = json == nullptr ? nullptr : find(*json, name);
  if (value == nullptr || !value->is_number_integer()) return otherwise;
  const auto number = value->get<double>();
  return number >= 0 && number <= kMost ? value->get<int64_t>() : otherwise;
}

std::string shown(std::string_view text) {
  return std::string(text.substr(0, kShownBytes)) + (text.size() > kShownBytes ? "..." : "");
}

// "error" is an object with a message, or with some servers the message itself.
std::string message_in(const Json& json) {
  const Json* error = find(json, "error");
  if (error == nullptr) return "";
  if (error->is_string()) return error->get<std::string>();
  const std::string message = text_at(error, "message");
  return message.empty() ? "an error without a message" : message;
}

}  // namespace

absl::StatusOr<StreamEvent> parse_stream_event(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.is_end = true;
    return event;
  }
  const Json json = parse(data);
  if (!json.is_object()) {
    return base::invalid_argument("the server sent an event that is no JSON object: {}",
                                  shown(data));
  }
  event.error = message_in(json);
  if (const Json* usage = find(json, "usage"); usage != nullptr) {
    event.usage = Usage{
        .prompt_tokens = number_at(usage, "prompt_tokens", 0),
        .completion_tokens = number_at(usage, "completion_tokens", 0),
        .cached_tokens = number_at(find(*usage, "prompt_tokens_details"), "cached_tokens", -1)};
  }
  const Json* choices = find(json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return event;
  const Json& choice = choices->front();
  event.finish_reason = text_at(&choice, "finish_reason");
  event.text = text_at(&choice, "text") + text_at(find(choice, "delta"), "content");
  return event;
}

std::string error_message(std::string_view body) {
  const std::string message = message_in(parse(body));
  return message.empty() ? shown(body) : message;
}

absl::StatusOr<std::string> first_model(boost::asio::io_context& io, HttpClient& client,
                                        const std::string& api_key) {
  ASSIGN_OR_RETURN(const HttpAnswer answer,
                   fetch(io, client, {.path = "/v1/models", .api_key = api_key}));
  if (answer.status == 401 || answer.status == 403) {
    return base::invalid_argument("the server wants a key; give it with --api-key");
  }
  const Json json = parse(answer.body);
  const Json* data = find(json, "data");
  if (answer.status != 200 || data == nullptr || !data->is_array() || data->empty()) return "";
  return text_at(&data->front(), "id");
}

std::optional<int64_t> count_tokens(boost::asio::io_context& io, HttpClient& client,
                                    const std::string& api_key, const std::string& model,
                                    const std::string& text) {
  for (const char* field : {"prompt", "content"}) {
    Json body = {{field, text}};
    if (!model.empty() && field[0] == 'p') body["model"] = model;
    const auto answer = fetch(io, client,
                              {.method = "POST",
                               .path = "/tokenize",
                               .body = body.dump(-1, ' ', false, Json::error_handler_t::replace),
                               .api_key = api_key});
    if (!answer.ok() || answer->status != 200) continue;
    const Json json = parse(answer->body);
    if (const int64_t count = number_at(&json, "count", 0); count > 0) return count;
    const Json* tokens = find(json, "tokens");
    if (tokens != nullptr && tokens->is_array() && !tokens->empty()) return std::ssize(*tokens);
  }
  return std::nullopt;
}

absl::Status check_api_key(std::string_view key) {
  if (std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7F; })) {
    return absl::OkStatus();
  }
  return base::invalid_argument("--api-key has a blank or another character that no key has");
}

}  // namespace pagoda::client
