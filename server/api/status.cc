#include "server/api/status.h"

#include <prometheus/text_serializer.h>

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

http::Response live_response(int64_t age_ms) {
  return json_response(
      {{"status", "alive"}, {"last_step_age_ms", age_ms < 0 ? Json() : Json(age_ms)}});
}

http::Response version_response(std::string_view version) {
  return json_response({{"version", version}});
}

http::Response metrics_response(const prometheus::Registry& registry) {
  return {200,
          "text/plain; version=0.0.4; charset=utf-8",
          prometheus::TextSerializer().Serialize(registry.Collect()),
          {}};
}

}  // namespace pagoda::api
