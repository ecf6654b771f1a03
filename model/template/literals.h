// Numbers and strings as a template writes them, and numbers as text holds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

struct NumberLiteral {
  Value value{};
  size_t len = 0;
};
// `text` begins with a digit.
NumberLiteral read_number(std::string_view text, bool may_be_float, int32_t line);

// The text between the quotes of a string with its escapes resolved.
std::string unescape_string(std::string_view raw, int32_t line);

// int(text, base) and float(text) of Python; none where they raise ValueError. Too large an
// integer is an error.
std::optional<int64_t> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);

}  // namespace pagoda::model::jinja
