#include "server/api/routes.h"

#include <utility>

#include "server/api/chat.h"
#include "server/api/completions.h"
#include "server/api/errors.h"
#include "server/api/kv_routes.h"
#include "server/api/status.h"
#include "server/api/tokenize.h"

namespace pagoda::api {

using Exchange = std::shared_ptr<http::Exchange>;

std::shared_ptr<const http::Router> make_router(Context& context) {
  // Shared with the requests that are being answered.
  auto router = std::make_shared<http::Router>();
  router->post("/v1/completions",
               [&context](Exchange e) { handle_completions(context, std::move(e)); });
  router->post("/v1/chat/completions",
               [&context](Exchange e) { handle_chat(context, std::move(e)); });
  router->post("/tokenize", [&context](Exchange e) { handle_tokenize(context, std::move(e)); });
  router->post("/detokenize", [&context](Exchange e) { handle_detokenize(context, std::move(e)); });
  router->post("/v1/kv/probe", [&context](Exchange e) { handle_kv_probe(context, std::move(e)); });
  router->get("/v1/models", [&context](Exchange e) { e->respond(models_response(context.model)); });
  router->get("/health",
              [&context](Exchange e) { e->respond(health_response(context.serving.load())); });
  router->get("/live", [&context](Exchange e) {
    const int64_t age_us = engine::step_age_us(context.engine.stats(), context.clock.now_us());
    e->respond(live_response(age_us, context.limits.step_timeout_us));
  });
  router->get("/version",
              [&context](Exchange e) { e->respond(version_response(context.version)); });
  router->get("/metrics",
              [&context](Exchange e) { e->respond(metrics_response(context.telemetry.text())); });
  return router;
}

std::shared_ptr<const http::Router> make_starting_router(std::string version) {
  auto router = std::make_shared<http::Router>();
  router->get("/health", [](Exchange e) { e->respond(health_response(false)); });
  router->get("/live", [](Exchange e) { e->respond(live_response(-1, 0)); });
  router->get("/version", [version = std::move(version)](Exchange e) {
    e->respond(version_response(version));
  });
  router->fallback([](Exchange e) {
    e->respond(error_response(absl::UnavailableError("the server is starting")));
  });
  return router;
}

}  // namespace pagoda::api
