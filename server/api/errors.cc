#include "server/api/errors.h"

#include "absl/strings/cord.h"
#include "server/api/json.h"

namespace pagoda::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kParamPayload[] = "pagoda.param";
constexpr char kCodePayload[] = "pagoda.code";

std::string payload(const absl::Status& status, const char* url) {
  const auto found = status.GetPayload(url);
  return found.has_value() ? std::string(*found) : std::string();
}

std::string body_of(std::string_view message, std::string_view type, std::string_view param,
                    std::string_view code) {
  const auto or_null = [](std::string_view text) { return text.empty() ? Json() : Json(text); };
  const Json body = {
      {"error",
       {{"message", message}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}}}};
  return to_text(body);
}

http::Response response_of(int status, std::string body) {
  http::Response response{status, "application/json", std::move(body), {}};
  if (status == 429 || status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

}  // namespace

ErrorKind error_kind(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return {400, "invalid_request_error", ""};
    case absl::StatusCode::kUnauthenticated:
      return {401, "authentication_error", ""};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error", ""};
    case absl::StatusCode::kNotFound:
      return {404, "invalid_request_error", "not_found"};
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return {409, "conflict_error", ""};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", "rate_limit_exceeded"};
    case absl::StatusCode::kCancelled:
      return {499, "cancelled_error", ""};
    case absl::StatusCode::kUnimplemented:
      return {501, "invalid_request_error", "unsupported"};
    case absl::StatusCode::kUnavailable:
      return {503, "unavailable_error", ""};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "timeout_error", "timeout"};
    case absl::StatusCode::kOk:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return {500, "server_error", ""};
    default:
      return {500, "server_error", ""};  // the enumeration is Abseil's and may grow
  }
}

absl::Status with_param(absl::Status status, std::string_view param) {
  status.SetPayload(kParamPayload, absl::Cord(std::string(param)));
  return status;
}

absl::Status with_code(absl::Status status, std::string_view code) {
  status.SetPayload(kCodePayload, absl::Cord(std::string(code)));
  return status;
}

std::string error_body(const absl::Status& status) {
  const ErrorKind kind = error_kind(status.code());
  const std::string code = payload(status, kCodePayload);
  return body_of(base::message_of(status), kind.type, payload(status, kParamPayload),
                 code.empty() ? kind.code : std::string_view(code));
}

http::Response error_response(const absl::Status& status) {
  return response_of(error_kind(status.code()).http_status, error_body(status));
}

http::Response listener_error(int http_status, std::string_view message) {
  std::string_view type = http_status >= 500 ? "server_error" : "invalid_request_error";
  std::string_view code;
  switch (http_status) {
    case 404:
      code = "not_found";
      break;
    case 405:
      code = "method_not_allowed";
      break;
    case 413:
      code = "body_too_large";
      break;
    case 429:
      type = "rate_limit_error";
      code = "rate_limit_exceeded";
      break;
    case 503:
      type = "unavailable_error";
      break;
    default:
      break;
  }
  return response_of(http_status, body_of(message, type, "", code));
}

}  // namespace pagoda::api
