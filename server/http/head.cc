#include "server/http/head.h"

#include <fmt/format.h>

#include <utility>

#include "server/http/wire.h"

namespace pagoda::http {

bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

HeadScanner::Result HeadScanner::scan(std::string_view bytes) {
  while (position_ < bytes.size()) {
    if (position_ >= max_bytes_) {
      return refuse(431, fmt::format("The headers are longer than {} bytes.", max_bytes_));
    }
    const char c = bytes[position_++];
    const Result result = take(bytes, c);
    if (result != Result::kIncomplete) return result;
  }
  return Result::kIncomplete;
}

// One byte; position_ is behind it.
HeadScanner::Result HeadScanner::take(std::string_view bytes, char c) {
  const bool after_cr = std::exchange(after_cr_, c == '\r');
  if (c == '\n' && after_cr) {
    return end_line(bytes.substr(line_begin_, position_ - 2 - line_begin_));
  }
  if (c == '\n' || after_cr) return refuse(400, "A line of the headers does not end in CR LF.");
  if (c == '\r') {
    if (in_name_ && position_ - 1 > line_begin_) {
      return refuse(400, "A line of the headers has no colon.");
    }
    return Result::kIncomplete;
  }
  if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f') {
    return refuse(400, "The headers hold a control byte.");
  }
  return in_name_ ? take_name(c) : Result::kIncomplete;
}

HeadScanner::Result HeadScanner::end_line(std::string_view line) {
  if (line.empty()) {
    if (n_lines_ > 0) return Result::kComplete;
    begin_ = line_begin_ = position_;
    return Result::kIncomplete;
  }
  if (n_lines_ > max_fields_) {
    return refuse(431, fmt::format("There are more than {} headers.", max_fields_));
  }
  if (n_lines_ > 0 && request_id_.empty()) {
    const std::string_view id = request_id_of(line);
    if (is_valid_request_id(id)) request_id_ = id;
  }
  ++n_lines_;
  line_begin_ = position_;
  in_name_ = true;
  return Result::kIncomplete;
}

HeadScanner::Result HeadScanner::take_name(char c) {
  const bool first = position_ - 1 == line_begin_;
  if (c == ':' && !first) {
    in_name_ = false;
    return Result::kIncomplete;
  }
  if (is_token_char(c)) return Result::kIncomplete;
  if (first && (c == ' ' || c == '\t')) {
    return refuse(400, "A header is folded over several lines; it must stand on one.");
  }
  return refuse(400, c == ' ' ? "A header's name has a space in it or before its colon."
                              : "A header's name is not valid.");
}

HeadScanner::Result HeadScanner::refuse(int status, std::string message) {
  status_ = status;
  message_ = std::move(message);
  return Result::kRefused;
}

}  // namespace pagoda::http
