// The operator % of texts (format.h).
#include <algorithm>
#include <cmath>

#include "model/template/format.h"
#include "model/template/number_format.h"
#include "model/template/operations.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

struct Conversion {
  bool is_left = false;
  bool is_zero_padded = false;
  int64_t width = 0;
  NumberFormat number;
};

class PercentFormatter {
 public:
  PercentFormatter(Workspace& workspace, const Text& format, const Value& values)
      : workspace_(workspace), format_(format), values_(values), out_(workspace) {}

  const Text* run() {
    workspace_.tick_bytes(format_.bytes.size());
    for (;;) {
      const size_t percent = std::min(find(format_.bytes, "%", at_), format_.bytes.size());
      out_.append(format_, at_, percent);
      if (percent == format_.bytes.size()) break;
      at_ = percent + 1;
      convert();
    }
    const bool is_used_up =
        values_.is(Kind::kTuple) ? next_ == values_.sequence->items.size() : next_ > 0;
    if (!is_used_up && !is_mapping()) fail("a format with % does not use all its values");
    return out_.finish(workspace_);
  }

 private:
  // What Python takes for a mapping: anything with items, apart from texts and tuples.
  bool is_mapping() const {
    return values_.is(Kind::kDict) || values_.is(Kind::kList) || values_.is(Kind::kRange) ||
           values_.is(Kind::kUndefined);
  }

  char peek() const {
    if (at_ >= format_.bytes.size()) fail("a format with % ends too early");
    return format_.bytes[at_];
  }

  Value next_value() {
    workspace_.tick();
    if (values_.is(Kind::kTuple)) {
      if (next_ >= values_.sequence->items.size()) fail("a format with % has too few values");
      return values_.sequence->items[next_++];
    }
    if (next_++ > 0) fail("a format with % has too few values");
    return values_;
  }

  int64_t read_number() {
    if (peek() == '*') {
      ++at_;
      return as_index(next_value(), "a width in a format");
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + (format_.bytes[at_++] - '0');
      if (number > kMaxFormatWidth) fail("a format asks for too wide a field");
    }
    return number;
  }

  void convert() {
    Value value;
    if (peek() == '(') value = keyed_value();
    Conversion conversion;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          conversion.is_left = true;
          break;
        case '+':
          conversion.number.sign = '+';
          break;
        case ' ':
          if (conversion.number.sign != '+') conversion.number.sign = ' ';
          break;
        case '#':
          conversion.number.alternate = true;
          break;
        case '0':
          conversion.is_zero_padded = true;
          break;
        default:
          more = false;
      }
      if (more) ++at_;
    }
    conversion.width = read_number();
    if (conversion.width < -kMaxFormatWidth || conversion.width > kMaxFormatWidth) {
      fail("a format asks for too wide a field");
    }
    if (conversion.width < 0) {
      conversion.is_left = true;
      conversion.width = -conversion.width;
    }
    if (peek() == '.') {
      ++at_;
      conversion.number.precision = std::max<int64_t>(read_number(), 0);
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') return out_.append(format_, at_ - 1, at_);
    if (value.is_missing()) value = next_value();
    append(value, type, conversion);
  }

  Value keyed_value() {
    const size_t begin = ++at_;
    for (int depth = 1; depth > 0; ++at_) {
      if (peek() == '(') ++depth;
      if (peek() == ')') --depth;
    }
    if (!is_mapping()) fail("a format with %(name) needs a dict");
    require_defined(values_);
    if (!values_.is(Kind::kDict)) fail("a format with %(name) needs a dict");
    const std::string_view key = format_.bytes.substr(begin, at_ - 1 - begin);
    const Value* found = find(workspace_, *values_.dict, key);
    if (found == nullptr) fail("a format with % finds no value '{}'", key);
    return *found;
  }

  void append(const Value& value, char type, Conversion& conversion) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return append_text(value, type, conversion);
      case 'c':
        return append_character(value, conversion);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return append_integer(value, type, conversion);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        require_defined(value);
        if (!value.is_number()) fail("a format with %{} needs a number", type);
        conversion.number.type = type;
        return append_number(real(as_real(value)), conversion);
      default:
        fail("a format has the unknown conversion '%{}'", type);
    }
  }

  void append_field(const Text& text, const Conversion& conversion) {
    const Text blank{.bytes = " ", .is_ascii = true};
    out_.append(*pad(workspace_, text, conversion.width, blank,
                     conversion.is_left ? Side::kLeft : Side::kRight));
  }

  void append_text(const Value& value, char type, const Conversion& conversion) {
    TextBuilder text(workspace_);
    if (type == 's') {
      append_str(workspace_, text, value);
    } else {
      append_repr(workspace_, text, value);
    }
    const Text* printed = text.finish(workspace_);
    if (type == 'a' && !printed->is_ascii) fail("%a is not supported for other than ASCII");
    if (conversion.number.precision >= 0) {
      const size_t end =
          offset_of(workspace_, *printed, static_cast<size_t>(conversion.number.precision));
      printed = sub_text(workspace_, *printed, 0, end);
    }
    append_field(*printed, conversion);
  }

  // A character made of a number might be one of a control token: it counts as a client's.
  void append_character(const Value& value, const Conversion& conversion) {
    require_defined(value);
    if (value.is_text() && length(workspace_, *value.text) == 1)
      return append_field(*value.text, conversion);
    const bool is_code = value.is(Kind::kInt) && value.integer >= 0 && value.integer <= 0x10FFFF &&
                         (value.integer < 0xD800 || value.integer > 0xDFFF);
    if (!is_code) fail("a format with %c needs a character");
    std::string character;
    append_utf8(character, static_cast<char32_t>(value.integer));
    append_field(*make_text(workspace_, character, true), conversion);
  }

  void append_integer(const Value& value, char type, Conversion& conversion) {
    require_defined(value);
    const bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    Value number = value;
    if (value.is(Kind::kFloat) && is_decimal) {
      if (!(std::fabs(value.real) < 0x1p63)) fail("an integer does not fit into 64 bits");
      number = integer(static_cast<int64_t>(value.real));
    } else if (!value.is_integer()) {
      fail("a format with %{} needs an integer", type);
    }
    conversion.number.type = is_decimal ? 'd' : type;
    append_number(number, conversion);
  }

  void append_number(const Value& value, const Conversion& conversion) {
    PrintedNumber number = print_number(value, conversion.number);
    int64_t n_zeros = 0;
    if (!value.is(Kind::kFloat)) {
      n_zeros = conversion.number.precision - static_cast<int64_t>(number.digits.size());
    }
    const auto printed = static_cast<int64_t>(number.sign.size() + number.digits.size());
    if (conversion.is_zero_padded && !conversion.is_left) {
      n_zeros = std::max(n_zeros, conversion.width - printed);
    }
    const std::string zeros(static_cast<size_t>(std::max<int64_t>(n_zeros, 0)), '0');
    append_field(*make_text(workspace_, number.sign + zeros + number.digits), conversion);
  }

  Workspace& workspace_;
  const Text& format_;
  const Value& values_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t next_ = 0;  // how many values are used
};

}  // namespace

Value format_percent(Workspace& workspace, const Text& format, const Value& values) {
  const Text* text = PercentFormatter(workspace, format, values).run();
  return text_value(with_markup(workspace, *text, format.is_markup));
}

}  // namespace pagoda::model::jinja
