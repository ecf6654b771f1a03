#include "server/http/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace pagoda::http {

std::string_view Request::header(std::string_view name) const {
  for (const Header& header : headers) {
    if (header.name == name) return header.value;
  }
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

std::string http_date(int64_t unix_s) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = unix_s;
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<size_t>(utc.tm_wday)], utc.tm_mday,
                     kMonths[static_cast<size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

namespace {

// Takes what stands before the first `c` at or after `from` off the text and returns it; all of the
// text if there is none.
std::string_view cut_at(char c, std::string_view& text, size_t from = 0) {
  const auto begin = text.begin() + static_cast<std::ptrdiff_t>(std::min(from, text.size()));
  const auto end = std::find(begin, text.end(), c);
  const std::string_view before(text.begin(), end);
  text = std::string_view(end, text.end());
  return before;
}

}  // namespace

std::string response_head(const Response& response, const HeadOptions& options) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: pagoda\r\n", response.status,
                  reason_phrase(response.status), http_date(options.unix_s));
  if (!response.content_type.empty()) {
    head += fmt::format("Content-Type: {}\r\n", response.content_type);
  }
  if (options.chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (options.content_length >= 0 && response.status != 204) {
    head += fmt::format("Content-Length: {}\r\n", options.content_length);
  }
  if (!options.keep_alive) head += "Connection: close\r\n";
  if (!options.request_id.empty()) head += fmt::format("X-Request-Id: {}\r\n", options.request_id);
  for (const Header& header : response.headers) {
    head += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  head += "\r\n";
  return head;
}

std::string chunk(std::string_view data) {
  return fmt::format("{:x}\r\n{}\r\n", data.size(), data);
}

bool is_valid_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

std::string_view request_id_of(std::string_view line) {
  static constexpr std::string_view kName = "x-request-id:";
  if (line.size() < kName.size() || lower(line.substr(0, kName.size())) != kName) return {};
  std::string_view value = line.substr(kName.size());
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  return value;
}

bool split_target(std::string_view target, std::string& path, std::string& query) {
  const size_t scheme = target.find("://");
  if (!target.starts_with('/') && scheme < target.size()) {
    (void)cut_at('/', target, scheme + 3);
    if (target.empty()) target = "/";
  }
  if (!target.starts_with('/')) return false;
  std::string_view rest = cut_at('#', target);
  path = cut_at('?', rest);
  query = rest.substr(std::min<size_t>(1, rest.size()));
  return true;
}

}  // namespace pagoda::http
