#include "model/template/number_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/template/operations.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

bool is_integer_type(char type) {
  return type == 'd' || type == 'b' || type == 'o' || type == 'x' || type == 'X';
}

std::string print_base(uint64_t number, char type) {
  switch (type) {
    case 'b':
      return fmt::format("{:b}", number);
    case 'o':
      return fmt::format("{:o}", number);
    case 'x':
      return fmt::format("{:x}", number);
    case 'X':
      return fmt::format("{:X}", number);
    default:
      return fmt::format("{}", number);
  }
}

std::string group(const std::string& digits, char separator, size_t size) {
  size_t end = 0;
  while (end < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[end]))) ++end;
  std::string grouped;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % size == 0) grouped += separator;
    grouped += digits[i];
  }
  return grouped + digits.substr(end);
}

std::string print_with(const char* conversion, int64_t precision, double number) {
  const int n = std::snprintf(nullptr, 0, conversion, static_cast<int>(precision), number);
  std::string text(static_cast<size_t>(n), '\0');
  std::snprintf(text.data(), text.size() + 1, conversion, static_cast<int>(precision), number);
  return text;
}

// Without the zeros that end the digits before an exponent.
std::string without_zeros(std::string text) {
  const size_t e = text.find('e');
  const size_t point = text.find('.');
  if (e == std::string::npos || point == std::string::npos) return text;
  const size_t last = text.find_last_not_of('0', e - 1);
  const size_t end = last == point ? point : last + 1;
  return text.erase(end, e - end);
}

// Digits of a number that is not negative.
std::string print_real(double number, const NumberFormat& format) {
  const int64_t precision = format.precision < 0 ? 6 : format.precision;
  char type = format.type == '%' ? 'f' : format.type;
  if (type == 'F') type = 'f';
  std::string text;
  if (type == 0 && format.precision < 0) {
    text = print_float(number);
  } else if (type == 0) {
    // As g, but it keeps a digit after the point and turns to exponents one digit earlier.
    text = print_with("%.*g", std::max<int64_t>(precision, 1), number);
    const bool has_point = text.find_first_of(".en") != std::string::npos;
    const auto n_digits = static_cast<int64_t>(text.size());
    if (!has_point && n_digits >= std::max<int64_t>(precision, 1)) {
      text = without_zeros(print_with("%.*e", std::max<int64_t>(precision, 1) - 1, number));
    } else if (!has_point) {
      text += ".0";
    }
  } else {
    std::string conversion = format.alternate ? "%#.*" : "%.*";
    conversion += type;
    text = print_with(conversion.c_str(),
                      type == 'g' || type == 'G' ? std::max<int64_t>(precision, 1) : precision,
                      number);
  }
  if (!std::isfinite(number)) text = std::isnan(number) ? "nan" : "inf";
  const bool is_large = format.type == 'F' || format.type == 'E' || format.type == 'G';
  if (is_large) text = upper(text);
  return format.type == '%' ? text + "%" : text;
}

}  // namespace

PrintedNumber print_number(const Value& number, const NumberFormat& format) {
  if (format.precision > kMaxFormatWidth) fail("a format asks for too many digits");
  PrintedNumber printed;
  bool is_negative = false;
  const bool as_integer =
      !number.is(Kind::kFloat) && (is_integer_type(format.type) || format.type == 0);
  if (as_integer) {
    uint64_t magnitude = number.big;
    if (!number.is(Kind::kBigInt)) {
      const int64_t value = number.is(Kind::kBool) ? (number.boolean ? 1 : 0) : number.integer;
      is_negative = value < 0;
      magnitude =
          is_negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    }
    printed.digits = print_base(magnitude, format.type);
    if (format.alternate && format.type != 'd' && format.type != 0) {
      printed.sign = {'0', format.type};
    }
  } else {
    double value = as_real(number);
    is_negative = std::signbit(value) && !std::isnan(value);
    value = std::fabs(value);
    printed.digits = print_real(format.type == '%' ? value * 100 : value, format);
  }
  if (format.grouping != 0) {
    const bool is_decimal = !as_integer || format.type == 'd' || format.type == 0;
    printed.digits = group(printed.digits, format.grouping, is_decimal ? 3 : 4);
  }
  if (is_negative) {
    printed.sign = "-" + printed.sign;
  } else if (format.sign != '-') {
    printed.sign = format.sign + printed.sign;
  }
  return printed;
}

}  // namespace pagoda::model::jinja
