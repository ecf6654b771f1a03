#include "server/http/cors.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "server/http/head.h"

namespace pagoda::http {
namespace {

constexpr std::string_view kExposed = "X-Request-Id, Retry-After";
constexpr std::string_view kUsualHeaders = "Authorization, Content-Type, X-Request-Id";
constexpr std::string_view kMaxAgeSeconds = "600";

bool is_list_of_tokens(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_token_char(c) || c == ',' || c == ' '; });
}

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("-._:[]").find(c) != std::string_view::npos;
}

}  // namespace

absl::Status check_cors_origin(std::string_view origin) {
  if (origin == "*" || origin == "null") return absl::OkStatus();
  const size_t scheme_len = origin.find("://");
  if (scheme_len != std::string_view::npos && scheme_len > 0) {
    const std::string_view scheme = origin.substr(0, scheme_len);
    const std::string_view host = origin.substr(scheme_len + 3);
    const bool is_scheme = std::all_of(scheme.begin(), scheme.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.';
    });
    const bool is_host = !host.empty() && std::all_of(host.begin(), host.end(), is_host_char);
    if (is_scheme && is_host) return absl::OkStatus();
  }
  return base::invalid_argument(
      "takes * or an origin in lower case without a path, as https://chat.example.org, not \"{}\"",
      origin);
}

CorsPolicy::CorsPolicy(std::vector<std::string> origins)
    : origins_(std::move(origins)),
      all_(std::find(origins_.begin(), origins_.end(), "*") != origins_.end()) {}

bool CorsPolicy::allows(std::string_view origin) const {
  return !origin.empty() &&
         (all_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end());
}

void CorsPolicy::add_headers(std::string_view origin, std::vector<Header>& headers) const {
  if (origins_.empty()) return;
  headers.push_back({"Vary", "Origin"});
  if (!allows(origin)) return;
  headers.push_back({"Access-Control-Allow-Origin", all_ ? "*" : std::string(origin)});
  headers.push_back({"Access-Control-Expose-Headers", std::string(kExposed)});
}

// The headers asked for are sent back, since "*" would not cover Authorization, and clients add
// names of their own. What they are is no danger: the listener reads none of them as trusted.
void CorsPolicy::add_preflight_headers(std::string_view origin, std::string_view methods,
                                       std::string_view requested,
                                       std::vector<Header>& headers) const {
  if (!allows(origin)) return;
  const bool echo = !requested.empty() && is_list_of_tokens(requested);
  headers.push_back({"Access-Control-Allow-Methods", std::string(methods)});
  headers.push_back(
      {"Access-Control-Allow-Headers", std::string(echo ? requested : kUsualHeaders)});
  headers.push_back({"Access-Control-Max-Age", std::string(kMaxAgeSeconds)});
}

}  // namespace pagoda::http
