#include "server/api/errors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace pagoda::api {
namespace {

using nlohmann::json;

TEST(Errors, EveryCodeHasAStatus) {
  const std::vector<std::pair<absl::StatusCode, int>> table = {
      {absl::StatusCode::kInvalidArgument, 400},   {absl::StatusCode::kOutOfRange, 400},
      {absl::StatusCode::kUnauthenticated, 401},   {absl::StatusCode::kPermissionDenied, 403},
      {absl::StatusCode::kNotFound, 404},          {absl::StatusCode::kAlreadyExists, 409},
      {absl::StatusCode::kResourceExhausted, 429}, {absl::StatusCode::kCancelled, 499},
      {absl::StatusCode::kInternal, 500},          {absl::StatusCode::kUnknown, 500},
      {absl::StatusCode::kDataLoss, 500},          {absl::StatusCode::kUnimplemented, 501},
      {absl::StatusCode::kUnavailable, 503},       {absl::StatusCode::kDeadlineExceeded, 504}};
  for (const auto& [code, status] : table) {
    EXPECT_EQ(error_response(absl::Status(code, "m")).status, status) << static_cast<int>(code);
  }
}

TEST(Errors, BodyOfABadField) {
  const json body = json::parse(error_body(bad_field("n", "must be {}", 5)));
  EXPECT_EQ(body, (json{{"error",
                         {{"message", "n must be 5"},
                          {"type", "invalid_request_error"},
                          {"param", "n"},
                          {"code", nullptr}}}}));
  EXPECT_EQ(json::parse(error_body(with_code(bad_field("p", "x"), "c"))).at("error").at("code"),
            "c");
}

TEST(Errors, RetryAfterWhereItHelps) {
  const auto has_retry = [](const http::Response& response) {
    return response.headers.size() == 1 && response.headers[0].name == "Retry-After" &&
           response.headers[0].value == "1";
  };
  EXPECT_TRUE(has_retry(error_response(absl::ResourceExhaustedError("m"))));
  EXPECT_TRUE(has_retry(error_response(absl::UnavailableError("m"))));
  EXPECT_TRUE(has_retry(listener_error(429, "m")));
  EXPECT_FALSE(has_retry(error_response(absl::InvalidArgumentError("m"))));
}

TEST(Errors, AMessageWithBrokenBytesStaysJson) {
  const json body = json::parse(error_body(base::invalid_argument("bad \xff byte")));
  EXPECT_TRUE(body.at("error").at("message").is_string());
}

}  // namespace
}  // namespace pagoda::api
