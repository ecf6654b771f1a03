#include "model/template/literals.h"

#include <charconv>
#include <cstdlib>

#include "model/template/unicode.h"

namespace pagoda::model::jinja {

namespace {

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (is_decimal_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Digits of a base with single underscores between them; how many characters.
size_t digits_len(std::string_view text, int base) {
  size_t len = 0;
  while (len < text.size()) {
    size_t next = len;
    if (text[next] == '_' && len > 0) ++next;
    if (next >= text.size() || digit_value(text[next]) >= base) break;
    len = next + 1;
  }
  return len;
}

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  return digits;
}

// The length of a float literal, 0 if the text begins with none.
size_t float_len(std::string_view text) {
  const size_t whole = digits_len(text, 10);
  if (whole == 0) return 0;
  size_t len = whole;
  if (len < text.size() && text[len] == '.') {
    const size_t fraction = digits_len(text.substr(len + 1), 10);
    if (fraction > 0) len += 1 + fraction;
  }
  if (len < text.size() && (text[len] == 'e' || text[len] == 'E')) {
    size_t exponent = len + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t n_digits = digits_len(text.substr(exponent), 10);
    if (n_digits > 0) len = exponent + n_digits;
  }
  return len == whole ? 0 : len;
}

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const Character first = first_character(text);
    if (!is_space(first.code)) break;
    text.remove_prefix(first.len);
  }
  while (!text.empty()) {
    const size_t last = last_character_begin(text);
    if (!is_space(first_character(text.substr(last)).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

int64_t to_integer(std::string_view digits, int base, bool is_negative) {
  std::string number = is_negative ? "-" : "";
  number += without_underscores(digits);
  int64_t value = 0;
  const auto result = std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (result.ec != std::errc()) fail("an integer does not fit into 64 bits");
  return value;
}

int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1]) {
    case 'b':
    case 'B':
      return 2;
    case 'o':
    case 'O':
      return 8;
    case 'x':
    case 'X':
      return 16;
    default:
      return 0;
  }
}

struct Escape {
  char32_t code = 0;
  size_t len = 0;  // after the backslash
};

Escape read_hex(std::string_view text, size_t n_digits, int32_t line) {
  char32_t code = 0;
  for (size_t i = 1; i <= n_digits; ++i) {
    const int digit = i < text.size() ? digit_value(text[i]) : 99;
    if (digit >= 16)
      fail_at(line, "\\{} in a string needs {} hexadecimal digits", text[0], n_digits);
    code = code * 16 + static_cast<char32_t>(digit);
  }
  if (code > 0x10FFFF) fail_at(line, "\\{} in a string names no character", text[0]);
  return {code, 1 + n_digits};
}

Escape read_named(std::string_view text, int32_t line) {
  const size_t end = text.find('}');
  if (text.size() > 1 && text[1] == '{' && end != std::string_view::npos && end < 100) {
    const char32_t code = character_by_name(text.substr(2, end - 2));
    if (code != 0) return {code, end + 1};
  }
  fail_at(line, "\\N in a string names no character");
}

Escape read_octal(std::string_view text) {
  Escape escape;
  while (escape.len < 3 && escape.len < text.size() && digit_value(text[escape.len]) < 8) {
    escape.code = escape.code * 8 + static_cast<char32_t>(digit_value(text[escape.len]));
    ++escape.len;
  }
  return escape;
}

// Python puts non-ASCII characters aside as escapes before it resolves escapes, so that one after
// a backslash turns into the text of its escape.
void append_set_aside(std::string& out, char32_t code) {
  const auto number = static_cast<uint32_t>(code);
  if (code < 0x100) {
    out += fmt::format("\\x{:02x}", number);
  } else if (code < 0x10000) {
    out += fmt::format("\\u{:04x}", number);
  } else {
    out += fmt::format("\\U{:08x}", number);
  }
}

// `text` follows a backslash. How many of its bytes belong to the escape.
size_t append_escape(std::string& out, std::string_view text, int32_t line) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (const size_t letter = kLetters.find(text[0]); letter != std::string_view::npos) {
    out += kMeanings[letter];
    return 1;
  }
  Escape escape;
  if (text[0] == '\n') {
    return 1;
  } else if (text[0] >= '0' && text[0] <= '7') {
    escape = read_octal(text);
  } else if (text[0] == 'x') {
    escape = read_hex(text, 2, line);
  } else if (text[0] == 'u') {
    escape = read_hex(text, 4, line);
  } else if (text[0] == 'U') {
    escape = read_hex(text, 8, line);
  } else if (text[0] == 'N') {
    escape = read_named(text, line);
  } else if (const Character character = first_character(text); character.code >= 0x80) {
    append_set_aside(out, character.code);
    return character.len;
  } else {
    out += '\\';
    return 0;
  }
  if (escape.code >= 0xD800 && escape.code <= 0xDFFF) {
    fail_at(line, "half a surrogate pair in a string; write the character itself or \\U");
  }
  append_utf8(out, escape.code);
  return escape.len;
}

// Python reads the decimal digits of any script.
std::string with_ascii_digits(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  std::string digits;
  for (size_t at = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    if (is_decimal(character.code)) {
      digits += static_cast<char>('0' + decimal_value(character.code));
    } else {
      digits += text.substr(at, character.len);
    }
    at += character.len;
  }
  return digits;
}

}  // namespace

NumberLiteral read_number(std::string_view text, bool may_be_float, int32_t line) {
  try {
    if (const size_t len = may_be_float ? float_len(text) : 0; len > 0) {
      const std::string digits = without_underscores(text.substr(0, len));
      return {real(std::strtod(digits.c_str(), nullptr)), len};
    }
    if (const int base = prefix_base(text); base != 0) {
      // An underscore may also follow the prefix.
      const size_t skipped = text.size() > 2 && text[2] == '_' ? 3 : 2;
      const size_t len = digits_len(text.substr(skipped), base);
      if (len > 0) {
        return {integer(to_integer(text.substr(skipped, len), base, false)), skipped + len};
      }
    }
    // Zeros may be repeated, but no other digit follows one: the next token then is out of place.
    const size_t len = text[0] == '0' ? digits_len(text, 1) : digits_len(text, 10);
    return {integer(to_integer(text.substr(0, len), 10, false)), len};
  } catch (TemplateError& error) {
    error.line = line;
    throw;
  }
}

std::string unescape_string(std::string_view raw, int32_t line) {
  std::string text;
  text.reserve(raw.size());
  for (size_t at = 0; at < raw.size();) {
    const size_t backslash = std::min(raw.find('\\', at), raw.size());
    text += raw.substr(at, backslash - at);
    at = backslash + 1;
    if (at < raw.size()) at += append_escape(text, raw.substr(at), line);
  }
  return text;
}

std::optional<int64_t> parse_int(std::string_view given, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const std::string digits = with_ascii_digits(given);
  std::string_view text = strip(digits);
  bool is_negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  int radix = static_cast<int>(base);
  const int prefixed = prefix_base(text);
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    radix = prefixed;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  } else if (base == 0) {
    radix = 10;
    if (!text.empty() && text[0] == '0' && digits_len(text, 1) != text.size()) return std::nullopt;
  }
  const size_t len = digits_len(text, radix);
  if (len == 0 || len != text.size()) return std::nullopt;
  return to_integer(text, radix, is_negative);
}

std::optional<double> parse_float(std::string_view given) {
  const std::string digits = with_ascii_digits(given);
  const std::string_view text = strip(digits);
  std::string_view rest = text;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) rest.remove_prefix(1);
  const std::string word = lower(rest);
  if (word != "inf" && word != "infinity" && word != "nan") {
    // Digits on at least one side of the dot; underscores only between digits.
    const size_t whole = digits_len(rest, 10);
    size_t len = whole;
    size_t fraction = 0;
    if (len < rest.size() && rest[len] == '.') {
      fraction = digits_len(rest.substr(len + 1), 10);
      len += 1 + fraction;
    }
    if (whole + fraction == 0) return std::nullopt;
    if (len < rest.size() && (rest[len] == 'e' || rest[len] == 'E')) {
      size_t exponent = len + 1;
      if (exponent < rest.size() && (rest[exponent] == '+' || rest[exponent] == '-')) ++exponent;
      const size_t n_digits = digits_len(rest.substr(exponent), 10);
      if (n_digits == 0) return std::nullopt;
      len = exponent + n_digits;
    }
    if (len != rest.size()) return std::nullopt;
  }
  return std::strtod(without_underscores(text).c_str(), nullptr);
}

}  // namespace pagoda::model::jinja
