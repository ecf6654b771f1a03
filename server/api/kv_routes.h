// Routes about the KV cache: what a prompt would find (for routers, on the main listener), and
// sessions, explanations and switches (for operators, on the admin listener).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/api/context.h"
#include "server/http/exchange.h"
#include "server/http/router.h"

namespace pagoda::api {

// POST /v1/kv/probe. On an I/O thread.
void handle_kv_probe(Context& context, std::shared_ptr<http::Exchange> exchange);

// Whether the request carries the key ("Authorization: Bearer KEY"); an empty key lets all in.
bool has_admin_key(const http::Request& request, std::string_view key);

// What operators can do. `key` may be empty, `drain` begins the end of the server. The context
// lives longer than the last exchange.
std::shared_ptr<const http::Router> make_admin_router(Context& context, std::string key,
                                                      std::function<void()> drain);

}  // namespace pagoda::api
