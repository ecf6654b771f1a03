// From the messages of a chat to a prompt, by the model's chat template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/template/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "server/api/chat_request.h"

namespace pagoda::api {

// Immutable; any thread may call.
class ChatPrompter {
 public:
  // Compiles the template and tries it, to see whether it wants the content of messages as a string
  // or as a list of parts. Borrows the tokenizer. kInvalidArgument: the template is wrong.
  static absl::StatusOr<std::unique_ptr<const ChatPrompter>> create(
      std::string_view source, const model::Tokenizer& tokenizer);

  // What the template makes of the chat. marker: a text that occurs nowhere in the input, needed
  // where the final message is continued. Errors: kInvalidArgument.
  absl::StatusOr<model::RenderedText> render(ChatInput chat, std::string_view marker,
                                             int64_t now_unix_s) const;
  // Appends the ids of a rendered chat. Control tokens count only where the template wrote them;
  // what a client wrote is text, whatever it looks like, yet words join over the borders.
  void encode(const model::RenderedText& rendered, bool add_special_tokens,
              std::vector<TokenId>& ids) const;

 private:
  ChatPrompter(std::unique_ptr<const model::ChatTemplate> chat_template,
               const model::Tokenizer& tokenizer, bool knows_developer);
  std::vector<model::TemplateVariable> variables(ChatInput chat) const;
  bool finds_content(Json content) const;

  const std::unique_ptr<const model::ChatTemplate> template_;
  const model::Tokenizer& tokenizer_;
  const bool knows_developer_;  // else such a message is one of the system
  bool wants_parts_ = false;
};

}  // namespace pagoda::api
