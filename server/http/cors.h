// Which pages of other origins may read the answers in a browser (the Fetch standard, "HTTP CORS
// protocol").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/http/message.h"

namespace pagoda::http {

// kInvalidArgument, completing "--cors-allow-origins …", for what no browser would ever send: an
// origin is "*", "null", or scheme://host[:port] in lower case and without a path.
absl::Status check_cors_origin(std::string_view origin);

// An allow-list, made once and read by any thread. Nothing of it asks for credentials: a key is
// sent in Authorization by the page itself, and no cookie is read.
class CorsPolicy {
 public:
  // Exact origins, or "*" for all; empty: no answer says anything about origins.
  explicit CorsPolicy(std::vector<std::string> origins);

  // What every answer carries. `origin` is the request's, empty if it has none. The answer varies
  // by origin even for one that is not allowed, since caches keep it for others.
  void add_headers(std::string_view origin, std::vector<Header>& headers) const;
  // What the answer to a preflight carries besides: nothing for an origin that is not allowed.
  // `methods` is the path's list; `requested` is Access-Control-Request-Headers.
  void add_preflight_headers(std::string_view origin, std::string_view methods,
                             std::string_view requested, std::vector<Header>& headers) const;

 private:
  bool allows(std::string_view origin) const;

  const std::vector<std::string> origins_;
  const bool all_;
};

}  // namespace pagoda::http
