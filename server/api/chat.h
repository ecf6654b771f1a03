// POST /v1/chat/completions.
#pragma once

#include <memory>

#include "server/api/context.h"
#include "server/http/exchange.h"

namespace pagoda::api {

// On an I/O thread; the work is done on the context's workers.
void handle_chat(Context& context, std::shared_ptr<http::Exchange> exchange);

// On a worker. kInvalidArgument: there is no chat template, or it refuses the chat.
absl::StatusOr<model::RenderedText> render_chat(Context& context, ChatInput chat);

}  // namespace pagoda::api
