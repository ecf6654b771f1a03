// The GET routes. They answer from memory in a fraction of a millisecond, so they run on the I/O
// thread and stay there for an observer when all workers are busy.
#pragma once

#include <string>
#include <string_view>

#include "server/api/context.h"
#include "server/http/message.h"

namespace pagoda::api {

http::Response models_response(const ServedModel& model);
http::Response health_response(bool serving);
// age_us: how long the engine has been at its step, 0 while it has nothing to do; negative: there
// is no engine yet. An age above the time limit is a 503: the process should be replaced.
http::Response live_response(int64_t age_us, int64_t step_timeout_us);
http::Response version_response(std::string_view version);
// text: in the Prometheus text format.
http::Response metrics_response(std::string text);

}  // namespace pagoda::api
