#include "server/api/chat_prompt.h"

#include <algorithm>
#include <utility>

#include "server/api/errors.h"
#include "server/api/prompt.h"

namespace pagoda::api {
namespace {

using model::RenderedText;
using model::TemplateVariable;

// Parts of a content are lines of one text, as vLLM joins them.
std::string joined(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (!text.empty()) text += '\n';
    text += part.at("text").get_ref<const std::string&>();
  }
  return text;
}

void set_content_form(Json& message, bool as_parts) {
  Json& content = message["content"];
  if (content.is_null()) {
    content = as_parts ? Json::array() : Json("");
  } else if (content.is_array() && !as_parts) {
    content = joined(content);
  } else if (content.is_string() && as_parts) {
    content = Json::array({{{"type", "text"}, {"text", std::move(content)}}});
  }
}

// The final message ends in the marker, so that its end can be found in what is rendered.
void append_marker(Json& message, std::string_view marker) {
  Json& content = message["content"];
  if (content.is_array() && content.empty()) {
    content.push_back({{"type", "text"}, {"text", ""}});
  }
  Json& text = content.is_array() ? content.back()["text"] : content;
  text.get_ref<std::string&>() += marker;
}

absl::Status cut_at_marker(std::string_view marker, RenderedText& rendered) {
  const size_t end = rendered.text.rfind(marker);
  if (end == std::string::npos) {
    return bad_field("continue_final_message",
                     "cannot be done: the chat template does not render the final message");
  }
  if (rendered.text.find(marker) != end) {
    return bad_field("continue_final_message",
                     "cannot be done: the chat template renders the final message twice");
  }
  rendered.text.resize(end);
  for (RenderedText::Span& span : rendered.spans) span.end = std::min(span.end, end);
  return absl::OkStatus();
}

}  // namespace

ChatPrompter::ChatPrompter(std::unique_ptr<const model::ChatTemplate> chat_template,
                           const model::Tokenizer& tokenizer, bool knows_developer)
    : template_(std::move(chat_template)),
      tokenizer_(tokenizer),
      knows_developer_(knows_developer) {}

absl::StatusOr<std::unique_ptr<const ChatPrompter>> ChatPrompter::create(
    std::string_view source, const model::Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(auto chat_template, model::ChatTemplate::compile(source));
  const bool knows_developer = source.find("'developer'") != std::string_view::npos ||
                               source.find("\"developer\"") != std::string_view::npos;
  std::unique_ptr<ChatPrompter> prompter(
      new ChatPrompter(std::move(chat_template), tokenizer, knows_developer));
  // A string works with nearly all templates; parts are for those that find their text only there.
  const Json parts = Json::array({{{"type", "text"}, {"text", "needle"}}});
  prompter->wants_parts_ = !prompter->finds_content("needle") && prompter->finds_content(parts);
  return prompter;
}

bool ChatPrompter::finds_content(Json content) const {
  ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  const auto rendered = template_->render(variables(std::move(chat)), 0);
  return rendered.ok() && rendered->text.find("needle") != std::string::npos;
}

std::vector<TemplateVariable> ChatPrompter::variables(ChatInput chat) const {
  std::vector<TemplateVariable> variables;
  for (auto& [name, value] : chat.kwargs.get_ref<Json::object_t&>()) {
    variables.push_back({name, std::move(value), true});
  }
  // Parsing a request lets only known roles in, and turn tokens may be made of them: <|user|>.
  variables.push_back({"messages", std::move(chat.messages), true, {"role"}});
  variables.push_back({"tools", std::move(chat.tools), true});
  variables.push_back({"documents", std::move(chat.documents), true});
  variables.push_back({"add_generation_prompt", chat.add_generation_prompt, false});
  const model::Vocabulary& vocabulary = tokenizer_.vocabulary();
  for (const auto& [name, id] :
       {std::pair{"bos_token", vocabulary.bos}, std::pair{"eos_token", vocabulary.eos}}) {
    if (id >= 0) variables.push_back({name, std::string(tokenizer_.token_bytes(id)), false});
  }
  return variables;
}

absl::StatusOr<RenderedText> ChatPrompter::render(ChatInput chat, std::string_view marker,
                                                  int64_t now_unix_s) const {
  for (Json& message : chat.messages) {
    if (message["role"] == "developer" && !knows_developer_) message["role"] = "system";
    set_content_form(message, wants_parts_);
  }
  const bool continues = chat.continue_final_message;
  if (continues) append_marker(chat.messages.back(), marker);
  auto rendered = template_->render(variables(std::move(chat)), now_unix_s);
  if (!rendered.ok()) return with_param(rendered.status(), "messages");
  if (continues) RETURN_IF_ERROR(cut_at_marker(marker, *rendered));
  return rendered;
}

void ChatPrompter::encode(const RenderedText& rendered, bool add_special_tokens,
                          std::vector<TokenId>& ids) const {
  const model::Vocabulary& vocabulary = tokenizer_.vocabulary();
  if (begins_with_bos(vocabulary, add_special_tokens)) ids.push_back(vocabulary.bos);
  std::vector<model::TextPart> parts;
  size_t begin = 0;
  for (const RenderedText::Span& span : rendered.spans) {
    if (span.end <= begin) continue;
    parts.push_back(
        {std::string_view(rendered.text).substr(begin, span.end - begin),
         span.from_user ? model::SpecialTokens::kAsText : model::SpecialTokens::kParse});
    begin = span.end;
  }
  tokenizer_.encode_parts(parts, ids);
}

}  // namespace pagoda::api
