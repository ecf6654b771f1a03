#include "server/api/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

constexpr auto kInputFields = std::to_array<std::string_view>(
    {"messages", "tools", "documents", "chat_template", "chat_template_kwargs",
     "add_generation_prompt", "continue_final_message", "add_special_tokens", "reasoning_effort"});

constexpr auto kChatFields =
    std::to_array<std::string_view>({"max_completion_tokens", "max_tokens", "logprobs",
                                     "top_logprobs", "tool_choice", "parallel_tool_calls",
                                     // Refused unless they change nothing.
                                     "functions", "function_call", "audio", "modalities",
                                     "prediction", "web_search_options", "echo"});

constexpr auto kRoles =
    std::to_array<std::string_view>({"developer", "system", "user", "assistant", "tool"});

// Variables that a request may not set, as the server does.
constexpr auto kReservedKwargs = std::to_array<std::string_view>(
    {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"});

absl::Status check_part(const Json& part, const std::string& field) {
  if (part.is_string()) return absl::OkStatus();
  if (!part.is_object()) {
    return bad_field(field, "must hold objects with type and text, not {}", shown(part));
  }
  const Fields fields(part);
  const Json* type = fields.find("type");
  if (type == nullptr || !type->is_string()) {
    return bad_field(field, "holds a part without a type");
  }
  if (*type != "text" && *type != "refusal") {
    return bad_field(field, "holds a part of type {}; this server reads text only", shown(*type));
  }
  const Json* text = fields.find(type->get_ref<const std::string&>());
  if (text == nullptr || !text->is_string()) {
    return bad_field(field, "holds a part of type {} without that string", shown(*type));
  }
  return absl::OkStatus();
}

// Every part becomes {"type": "text", "text": …}.
absl::Status read_content(Json& message, const std::string& field) {
  const auto it = message.find("content");
  if (it == message.end() || it->is_null() || it->is_string()) return absl::OkStatus();
  if (!it->is_array()) {
    return bad_field(field, "must be a string or a list of parts, not {}", shown(*it));
  }
  for (Json& part : *it) {
    RETURN_IF_ERROR(check_part(part, field));
    if (part.is_string()) {
      part = Json{{"type", "text"}, {"text", std::move(part)}};
    } else if (part["type"] == "refusal") {
      part = Json{{"type", "text"}, {"text", std::move(part["refusal"])}};
    }
  }
  return absl::OkStatus();
}

// Templates expect arguments as an object, clients send its text.
absl::Status read_tool_call(Json& call, const std::string& field, int32_t max_json_depth) {
  if (!call.is_object()) return bad_field(field, "must be an object, not {}", shown(call));
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object()) {
    return bad_field(field, "must have an object named function");
  }
  const Json* name = Fields(*function).find("name");
  if (name == nullptr || !name->is_string()) {
    return bad_field(field + ".function.name", "must be a string");
  }
  Json& arguments = (*function)["arguments"];
  const std::string arguments_field = field + ".function.arguments";
  if (arguments.is_null()) {
    arguments = Json::object();
  } else if (const auto* text = arguments.get_ptr<const std::string*>()) {
    auto parsed = text->find_first_not_of(" \t\r\n") == std::string::npos
                      ? absl::StatusOr<Json>(Json::object())
                      : parse_whole_object(*text, arguments_field, max_json_depth);
    if (!parsed.ok()) return with_param(parsed.status(), arguments_field);
    arguments = *std::move(parsed);
  } else if (!arguments.is_object()) {
    return bad_field(arguments_field, "must be the text of a JSON object, not {}",
                     shown(arguments));
  }
  return absl::OkStatus();
}

absl::Status read_tool_calls(Json& message, const std::string& field, int32_t max_json_depth) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return absl::OkStatus();
  if (calls->is_null() || (calls->is_array() && calls->empty())) {
    message.erase("tool_calls");
    return absl::OkStatus();
  }
  if (!calls->is_array()) return bad_field(field, "must be a list, not {}", shown(*calls));
  for (size_t i = 0; i < calls->size(); ++i) {
    RETURN_IF_ERROR(read_tool_call((*calls)[i], fmt::format("{}[{}]", field, i), max_json_depth));
  }
  return absl::OkStatus();
}

absl::Status read_message(Json& message, const std::string& field, int32_t max_json_depth) {
  if (!message.is_object()) return bad_field(field, "must be an object, not {}", shown(message));
  const Fields fields(message);
  const Json* role = fields.find("role");
  if (role == nullptr || !role->is_string() ||
      std::ranges::find(kRoles, role->get_ref<const std::string&>()) == kRoles.end()) {
    return bad_field(field + ".role", "must be one of {}, not {}", fmt::join(kRoles, ", "),
                     role == nullptr ? "missing" : shown(*role));
  }
  const bool is_assistant = *role == "assistant";
  for (const std::string_view name : {"name", "tool_call_id"}) {
    std::string text;
    RETURN_IF_ERROR(
        with_param(fields.read(name, text, kMaxNameBytes), fmt::format("{}.{}", field, name)));
  }
  RETURN_IF_ERROR(read_content(message, field + ".content"));
  RETURN_IF_ERROR(read_tool_calls(message, field + ".tool_calls", max_json_depth));
  if (!fields.has("content") && !(is_assistant && (message.contains("tool_calls")))) {
    return bad_field(field + ".content", "is required");
  }
  return absl::OkStatus();
}

absl::Status read_messages(Json& object, int32_t max_json_depth, Json& messages) {
  const auto it = object.find("messages");
  if (it == object.end() || it->is_null()) return bad_field("messages", "is required");
  if (!it->is_array() || it->empty() || it->size() > kMaxMessages) {
    return bad_field("messages", "must be a list of 1 to {} messages, not {}", kMaxMessages,
                     shown(*it));
  }
  for (size_t i = 0; i < it->size(); ++i) {
    RETURN_IF_ERROR(read_message((*it)[i], fmt::format("messages[{}]", i), max_json_depth));
  }
  messages = std::move(*it);
  return absl::OkStatus();
}

absl::Status read_kwargs(Json& object, Json& kwargs) {
  const auto it = object.find("chat_template_kwargs");
  if (it == object.end() || it->is_null()) return absl::OkStatus();
  if (!it->is_object() || it->size() > kMaxTemplateKwargs) {
    return bad_field("chat_template_kwargs", "must be an object of at most {} values, not {}",
                     kMaxTemplateKwargs, shown(*it));
  }
  for (const auto& [name, value] : it->items()) {
    if (std::ranges::find(kReservedKwargs, name) != kReservedKwargs.end()) {
      return bad_field("chat_template_kwargs", "may not set {}", name);
    }
  }
  kwargs = std::move(*it);
  return absl::OkStatus();
}

absl::Status take_list(Json& object, std::string_view name, Json& out) {
  const auto it = object.find(name);
  if (it == object.end() || it->is_null()) return absl::OkStatus();
  if (!it->is_array()) return bad_field(name, "must be a list, not {}", shown(*it));
  for (const Json& item : *it) {
    if (!item.is_object()) return bad_field(name, "must hold objects, not {}", shown(item));
  }
  if (!it->empty()) out = std::move(*it);
  return absl::OkStatus();
}

absl::Status read_logprobs(const Fields& fields, ChatRequest& request) {
  RETURN_IF_ERROR(fields.read("logprobs", request.logprobs));
  int64_t n_top = 0;
  RETURN_IF_ERROR(fields.read("top_logprobs", n_top, 0, ops::kMaxTopLogprobs));
  if (n_top > 0 && !request.logprobs) {
    return bad_field("top_logprobs", "is only for requests with logprobs");
  }
  request.sampling.n_logprobs = request.logprobs ? static_cast<int32_t>(n_top) : -1;
  return absl::OkStatus();
}

absl::Status read_max_tokens(const Fields& fields, const SamplingDefaults& defaults,
                             ChatRequest& request) {
  static constexpr std::string_view kNames[] = {"max_completion_tokens", "max_tokens"};
  constexpr int64_t kWhatFits = std::numeric_limits<int64_t>::max();
  return read_lengths(fields, kNames, 1, defaults.max_tokens.value_or(kWhatFits), request);
}

// Tools can be shown to the model, but its calls aren't read yet.
absl::Status check_tool_choice(const Fields& fields, const ChatInput& chat) {
  const Json* choice = fields.find("tool_choice");
  if (choice != nullptr && *choice == "none") return absl::OkStatus();
  if (!chat.tools.is_null()) {
    return bad_field("tools",
                     "is only supported with \"tool_choice\": \"none\": the model's calls "
                     "are not read");
  }
  if (choice != nullptr && *choice != "auto") {
    return bad_field("tool_choice", "is not supported by this server unless \"none\" or \"auto\"");
  }
  return absl::OkStatus();
}

absl::Status refuse_unsupported(const Fields& fields) {
  const NeutralField neutrals[] = {{"functions", nullptr},  {"function_call", "none"},
                                   {"audio", nullptr},      {"modalities", Json::array({"text"})},
                                   {"prediction", nullptr}, {"web_search_options", nullptr},
                                   {"echo", false}};
  return refuse_unless_neutral(fields, neutrals);
}

}  // namespace

std::vector<std::string_view> chat_input_fields() {
  return {kInputFields.begin(), kInputFields.end()};
}

absl::StatusOr<ChatInput> read_chat_input(Json& object, int32_t max_json_depth) {
  ChatInput chat;
  const Fields fields(object);
  RETURN_IF_ERROR(read_messages(object, max_json_depth, chat.messages));
  RETURN_IF_ERROR(take_list(object, "tools", chat.tools));
  RETURN_IF_ERROR(take_list(object, "documents", chat.documents));
  RETURN_IF_ERROR(read_kwargs(object, chat.kwargs));
  std::string effort;
  RETURN_IF_ERROR(fields.read("reasoning_effort", effort, kMaxNameBytes));
  if (!effort.empty() && !chat.kwargs.contains("reasoning_effort")) {
    chat.kwargs["reasoning_effort"] = std::move(effort);
  }
  RETURN_IF_ERROR(fields.read("continue_final_message", chat.continue_final_message));
  chat.add_generation_prompt = !chat.continue_final_message;
  RETURN_IF_ERROR(fields.read("add_generation_prompt", chat.add_generation_prompt));
  RETURN_IF_ERROR(fields.read("add_special_tokens", chat.add_special_tokens));
  if (chat.continue_final_message && chat.add_generation_prompt) {
    return bad_field("continue_final_message", "and add_generation_prompt exclude each other");
  }
  if (chat.continue_final_message && !Fields(chat.messages.back()).has("content")) {
    return bad_field("continue_final_message", "needs a final message with a content");
  }
  if (fields.has("chat_template")) {
    return bad_field("chat_template",
                     "of a request is not taken; the server's is set by "
                     "--chat-template");
  }
  return chat;
}

absl::StatusOr<ChatRequest> parse_chat(std::string_view body, const RequestLimits& limits) {
  static const std::vector<std::string_view> kKnown = [] {
    std::vector<std::string_view> names = known_fields(kChatFields);
    names.insert(names.end(), kInputFields.begin(), kInputFields.end());
    return names;
  }();
  ASSIGN_OR_RETURN(JsonBody parsed, parse_object(body, kKnown, limits.max_json_depth));
  ChatRequest request;
  request.unknown_fields = std::move(parsed.unknown);
  ASSIGN_OR_RETURN(request.chat, read_chat_input(parsed.object, limits.max_json_depth));
  const Fields fields(parsed.object);
  RETURN_IF_ERROR(read_generation(fields, limits, request));
  RETURN_IF_ERROR(read_logprobs(fields, request));
  RETURN_IF_ERROR(read_max_tokens(fields, limits.defaults, request));
  RETURN_IF_ERROR(check_tool_choice(fields, request.chat));
  RETURN_IF_ERROR(refuse_unsupported(fields));
  if (request.n > limits.max_choices) {
    return bad_field("n", "asks for {} answers; at most {} are given", request.n,
                     limits.max_choices);
  }
  return request;
}

}  // namespace pagoda::api
