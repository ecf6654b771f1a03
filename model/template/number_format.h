// Numbers by the rules that % and str.format share.
#pragma once

#include <cstdint>
#include <string>

#include "model/template/value.h"

namespace pagoda::model::jinja {

struct NumberFormat {
  char type = 0;    // d b o x X e E f F g G %; 0: as str() has it
  char sign = '-';  // '-' only of negative ones, '+', ' '
  bool alternate = false;
  char grouping = 0;  // ',' or '_' between thousands
  int64_t precision = -1;
};

// At most so many digits, characters or blanks are made by one format.
inline constexpr int64_t kMaxFormatWidth = 1'000'000;

// Sign and prefix apart from the digits, for zeros that go between.
struct PrintedNumber {
  std::string sign{};
  std::string digits{};
};
PrintedNumber print_number(const Value& number, const NumberFormat& format);

}  // namespace pagoda::model::jinja
