// POST /tokenize and /detokenize.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/context.h"
#include "server/http/exchange.h"

namespace pagoda::api {

// On an I/O thread; the work is done on the context's workers.
void handle_tokenize(Context& context, std::shared_ptr<http::Exchange> exchange);
void handle_detokenize(Context& context, std::shared_ptr<http::Exchange> exchange);

// The body of the answer. On a worker.
absl::StatusOr<std::string> tokenize(Context& context, std::string_view body);
absl::StatusOr<std::string> detokenize(Context& context, std::string_view body);

// The token ids of a body's `prompt` (text, or a list of ids) or `messages`, with the fields of a
// chat. Takes what it needs out of `object`.
absl::StatusOr<std::vector<model::TokenId>> read_prompt_ids(Context& context, Json& object);

}  // namespace pagoda::api
