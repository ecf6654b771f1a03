// The address of a server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagoda::client {

struct Url {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string path;  // before every route: "" or "/api", without /v1

  std::string host_header() const;
  std::string text() const;  // "http://host:port/path"
};

// "http://127.0.0.1:8000"; a path that ends in / or /v1 loses that, as the routes bring it.
// kInvalidArgument for https (there is no TLS here) and for all that is no address.
absl::StatusOr<Url> parse_url(std::string_view text);

}  // namespace pagoda::client
