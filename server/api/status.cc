#include "server/api/status.h"

#include <utility>

#include "server/api/errors.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

using Json = nlohmann::ordered_json;

http::Response json_response(const Json& json) {
  return {200, "application/json", to_text(json), {}};
}

}  // namespace

http::Response models_response(const ServedModel& model) {
  Json data = Json::array();
  for (const std::string& name : model.names) {
    Json entry = {{"id", name},
                  {"object", "model"},
                  {"created", model.created_s},
                  {"owned_by", "pagoda"},
                  {"root", model.root},
                  {"parent", nullptr},
                  {"max_model_len", model.max_model_len},
                  {"kv_block_size", model.block_size}};
    if (!model.context_note.empty()) entry["context_note"] = model.context_note;
    data.push_back(std::move(entry));
  }
  return json_response({{"object", "list"}, {"data", std::move(data)}});
}

http::Response health_response(bool serving) {
  if (serving) return json_response({{"status", "ok"}});
  return error_response(absl::UnavailableError("the server is starting or shutting down"));
}

http::Response live_response(int64_t age_us, int64_t step_timeout_us) {
  const bool is_stuck = age_us > step_timeout_us;
  http::Response response =
      json_response({{"status", is_stuck ? "stuck" : "alive"},
                     {"last_step_age_ms", age_us < 0 ? Json() : Json(age_us / 1000)}});
  if (is_stuck) response.status = 503;
  return response;
}

http::Response version_response(std::string_view version) {
  return json_response({{"version", version}});
}

http::Response metrics_response(std::string text) {
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(text), {}};
}

}  // namespace pagoda::api
