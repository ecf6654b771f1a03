// The bytes of HTTP/1.1 that go out: heads of responses and chunks. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace pagoda::http {

struct HeadOptions {
  bool keep_alive = true;
  bool chunked = false;        // else content_length is sent
  int64_t content_length = 0;  // negative: none, the end of the connection ends the body
  std::string_view request_id;
  int64_t unix_s = 0;  // for Date
};

// Status line and headers with the empty line that ends them. A 204 has no body and tells no
// length.
std::string response_head(const Response& response, const HeadOptions& options);

// One chunk of the chunked transfer coding (RFC 9112, section 7.1); `data` is not empty.
std::string chunk(std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

std::string_view reason_phrase(int status);
// RFC 9110, section 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date(int64_t unix_s);

// True for an id that may be echoed and logged: 1 to 128 visible ASCII characters.
bool is_valid_request_id(std::string_view id);

// The value when `line` is the field X-Request-Id, without the spaces around it; else empty.
std::string_view request_id_of(std::string_view line);

// ASCII letters in lower case.
std::string lower(std::string_view text);

// Splits a request target into path and query. The absolute form "http://host/path" is accepted as
// RFC 9112, section 3.2.2 asks. False when there is no path in it.
bool split_target(std::string_view target, std::string& path, std::string& query);

}  // namespace pagoda::http
