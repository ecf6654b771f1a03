#include "server/api/completions.h"

#include <fmt/format.h>

#include <utility>

#include "server/api/completion_answer.h"
#include "server/api/errors.h"
#include "server/api/generation.h"
#include "server/api/prompt.h"

namespace pagoda::api {
namespace {

// Turns the texts of the prompts into ids and checks that prompt and answer fit the context.
absl::Status tokenize_prompts(const Context& context, const http::Exchange& exchange,
                              CompletionRequest& request) {
  const TokenId bos = context.tokenizer.vocabulary().bos;
  for (Prompt& prompt : request.prompts) {
    if (exchange.client_gone()) return absl::CancelledError("the client has left");
    if (prompt.is_text) {
      RETURN_IF_ERROR(check_text_length(context.model, request, prompt.text.size(), "prompt"));
      encode_text(context.tokenizer, prompt.text, request.add_special_tokens, prompt.ids);
    }
    const size_t n_all = prompt.ids.size();
    RETURN_IF_ERROR(fit_prompt(context.model, request, "prompt", bos, prompt.ids));
    if (prompt.ids.size() < n_all) prompt.is_text = false;  // an echo is of what is left
  }
  return check_logprobs(context.model, request, request.prompts);
}

absl::StatusOr<std::unique_ptr<Answer>> make_completion(Context& context,
                                                        http::Exchange& exchange) {
  ASSIGN_OR_RETURN(CompletionRequest request,
                   parse_completion(exchange.take_body(), request_limits(context)));
  RETURN_IF_ERROR(finish_request(context, request));
  RETURN_IF_ERROR(tokenize_prompts(context, exchange, request));
  return std::make_unique<CompletionAnswer>(make_head(context, request, "cmpl"), std::move(request),
                                            context.tokenizer);
}

}  // namespace

void handle_completions(Context& context, std::shared_ptr<http::Exchange> exchange) {
  handle_generation(context, std::move(exchange), "/v1/completions", make_completion);
}

}  // namespace pagoda::api
