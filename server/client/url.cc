#include "server/client/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace pagoda::client {
namespace {

absl::Status no_address(std::string_view text) {
  return base::invalid_argument("\"{}\" is no address of a server; http://127.0.0.1:8000 is one",
                                text);
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

}  // namespace

std::string Url::host_header() const {
  const std::string name = host.find(':') == std::string::npos ? host : fmt::format("[{}]", host);
  return port == 80 ? name : fmt::format("{}:{}", name, port);
}

std::string Url::text() const { return fmt::format("http://{}{}", host_header(), path); }

absl::StatusOr<Url> parse_url(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) {
    return base::invalid_argument(
        "{}: https is not spoken here; give the http:// address of the server, or of a proxy that "
        "adds TLS",
        text);
  }
  if (!text.starts_with(kScheme) || !is_plain(text)) return no_address(text);
  std::string_view rest = text.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  if (path.find_first_of("?#") != path.npos || authority.find_first_of("?#@") != authority.npos) {
    return no_address(text);
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);
  Url url;
  url.path = path;
  // [::1]:8000, 127.0.0.1:8000, name
  const bool is_ipv6 = authority.starts_with('[');
  const size_t host_end = is_ipv6 ? authority.find(']') : authority.find(':');
  if (is_ipv6 && host_end == authority.npos) return no_address(text);
  url.host = is_ipv6 ? authority.substr(1, host_end - 1) : authority.substr(0, host_end);
  std::string_view port =
      authority.substr(std::min(authority.size(), host_end + (is_ipv6 ? 1 : 0)));
  if (host_end == authority.npos) port = {};
  if (url.host.empty()) return no_address(text);
  if (port.empty()) return url;
  if (!port.starts_with(':')) return no_address(text);
  port.remove_prefix(1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url.port);
  if (error != std::errc() || end != port.data() + port.size() || url.port == 0) {
    return base::invalid_argument("{}: the port is a number from 1 to 65535, not \"{}\"", text,
                                  port);
  }
  return url;
}

}  // namespace pagoda::client
