// POST /v1/completions.
#pragma once

#include <memory>

#include "server/api/context.h"
#include "server/http/exchange.h"

namespace pagoda::api {

// On an I/O thread; the work is done on the context's workers.
void handle_completions(Context& context, std::shared_ptr<http::Exchange> exchange);

}  // namespace pagoda::api
