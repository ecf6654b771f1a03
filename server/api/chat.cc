#include "server/api/chat.h"

#include <fmt/format.h>

#include <utility>

#include "server/api/chat_answer.h"
#include "server/api/errors.h"
#include "server/api/generation.h"
#include "server/api/prompt.h"

namespace pagoda::api {
namespace {

absl::StatusOr<std::unique_ptr<Answer>> make_chat(Context& context, http::Exchange& exchange) {
  ASSIGN_OR_RETURN(ChatRequest request, parse_chat(exchange.take_body(), request_limits(context)));
  RETURN_IF_ERROR(finish_request(context, request));
  const bool add_special_tokens = request.chat.add_special_tokens;
  ASSIGN_OR_RETURN(model::RenderedText rendered, render_chat(context, std::move(request.chat)));
  RETURN_IF_ERROR(check_text_length(context.model, request, rendered.text.size(), "messages"));
  Prompt prompt;
  context.chat->encode(rendered, add_special_tokens, prompt.ids);
  prompt.text = std::move(rendered.text);
  const TokenId bos = context.tokenizer.vocabulary().bos;
  RETURN_IF_ERROR(fit_prompt(context.model, request, "messages", bos, prompt.ids));
  RETURN_IF_ERROR(check_logprobs(context.model, request, {&prompt, 1}));
  return std::make_unique<ChatAnswer>(make_head(context, request, "chatcmpl"), std::move(request),
                                      std::move(prompt), context.tokenizer);
}

}  // namespace

absl::StatusOr<model::RenderedText> render_chat(Context& context, ChatInput chat) {
  if (context.chat == nullptr) {
    return with_param(base::invalid_argument("the model has no chat template; the server can be "
                                             "given one by --chat-template"),
                      "messages");
  }
  const std::string marker = fmt::format("[continue {:016x}]", context.random.next());
  return context.chat->render(std::move(chat), marker, context.clock.unix_s());
}

void handle_chat(Context& context, std::shared_ptr<http::Exchange> exchange) {
  handle_generation(context, std::move(exchange), "/v1/chat/completions", make_chat);
}

}  // namespace pagoda::api
