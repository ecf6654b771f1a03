// All routes of the listener.
#pragma once

#include <memory>
#include <string>

#include "server/api/context.h"
#include "server/http/router.h"

namespace pagoda::api {

// The context lives longer than the last exchange.
std::shared_ptr<const http::Router> make_router(Context& context);

// Before the model is there: alive, but not ready, and 503 for everything else.
std::shared_ptr<const http::Router> make_starting_router(std::string version);

}  // namespace pagoda::api
