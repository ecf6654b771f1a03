// Errors as clients see them: one table from Status codes to HTTP, and the two things that a Status
// of a wrong request carries besides its message, the field and the code.
//
//   {"error": {"message": …, "type": …, "param": … or null, "code": … or null}}
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "base/check.h"
#include "server/http/message.h"

namespace pagoda::api {

// What clients are told for a Status code.
struct ErrorKind {
  int http_status = 500;
  std::string_view type;
  std::string_view code;  // empty: null
};
ErrorKind error_kind(absl::StatusCode code);

absl::Status with_param(absl::Status status, std::string_view param);
absl::Status with_code(absl::Status status, std::string_view code);

// kInvalidArgument of the field `param`; the message begins with its name.
template <typename... Args>
absl::Status bad_field(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
  return with_param(
      base::invalid_argument("{} {}", param, fmt::format(format, std::forward<Args>(args)...)),
      param);
}

// The JSON object above, in one line.
std::string error_body(const absl::Status& status);
// With Retry-After where another attempt makes sense.
http::Response error_response(const absl::Status& status);
// For what the listener itself refuses.
http::Response listener_error(int http_status, std::string_view message);

}  // namespace pagoda::api
