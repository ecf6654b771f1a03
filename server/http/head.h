// The head of a request as raw bytes: where it ends, and what is refused before it is parsed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pagoda::http {

// Beast takes forms that another server before or behind this one may read differently, such as
// folded lines; so requests are smuggled. Here a head has one reading (RFC 9112, sections 2.2 and
// 5) or none. A plain value; the bytes stay with the caller.
class HeadScanner {
 public:
  enum class Result { kIncomplete, kComplete, kRefused };

  HeadScanner(size_t max_bytes, size_t max_fields)
      : max_bytes_(max_bytes), max_fields_(max_fields) {}

  // `bytes` is all that was received since the head began, what earlier calls saw included. Time
  // grows with what is new.
  Result scan(std::string_view bytes);

  // Of a complete head: where its request line begins, behind empty lines, which are nothing
  // (RFC 9112, section 2.2), and where the empty line that ends it ends.
  size_t begin() const { return begin_; }
  size_t end() const { return position_; }
  // The first X-Request-Id so far that may be echoed; else empty.
  const std::string& request_id() const { return request_id_; }
  // Of a refused head: 400 or 431, and a sentence.
  int status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  Result take(std::string_view bytes, char c);
  Result end_line(std::string_view line);
  Result take_name(char c);
  Result refuse(int status, std::string message);

  size_t max_bytes_;
  size_t max_fields_;
  size_t begin_ = 0;
  size_t position_ = 0;    // of the first byte not yet seen
  size_t line_begin_ = 0;  // of the line that position_ is in
  size_t n_lines_ = 0;     // complete ones
  bool in_name_ = false;   // of a field, before its colon
  bool after_cr_ = false;
  int status_ = 0;
  std::string message_;
  std::string request_id_;
};

// True for a byte of a method or of a field's name (RFC 9110, section 5.6.2).
bool is_token_char(char c);

}  // namespace pagoda::http
