// The GET routes. They answer from memory in a fraction of a millisecond, so they run on the I/O
// thread and stay there for an observer when all workers are busy.
#pragma once

#include <string_view>

#include "server/api/context.h"
#include "server/http/message.h"

namespace pagoda::api {

http::Response models_response(const ServedModel& model);
http::Response health_response(bool serving);
// age_ms: since the end of the engine's last step; negative: there was none.
http::Response live_response(int64_t age_ms);
http::Response version_response(std::string_view version);
// The Prometheus text format.
http::Response metrics_response(const prometheus::Registry& registry);

}  // namespace pagoda::api
