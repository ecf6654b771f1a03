#include "model/template/operations.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "model/template/format.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

// Wide enough for int64, uint64 and double alike, so that comparing is exact.
long double wide(const Value& value) {
  switch (value.kind) {
    case Kind::kBool:
      return value.boolean ? 1 : 0;
    case Kind::kBigInt:
      return static_cast<long double>(value.big);
    case Kind::kFloat:
      return value.real;
    default:
      return static_cast<long double>(value.integer);
  }
}

bool equal_items(Workspace& workspace, std::span<const Value> a, std::span<const Value> b) {
  if (a.size() != b.size()) return false;
  if (a.data() == b.data()) return true;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(workspace, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Workspace& workspace, const Dict& a, const Dict& b) {
  if (a.size != b.size) return false;
  for (const Dict::Entry& entry : a.items()) {
    const Value* other = find(workspace, b, entry.key);
    if (other == nullptr || !equal(workspace, entry.value, *other)) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.size != b.size) return false;
  if (a.size == 0) return true;
  return a.start == b.start && (a.size == 1 || a.step == b.step);
}

[[noreturn]] void fail_order(const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail("a {} and a {} have no order", type_name(a), type_name(b));
}

const char* symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
  }
  return "?";
}

[[noreturn]] void fail_overflow() { fail("an integer does not fit into 64 bits"); }

int64_t as_integer(const Value& value) {
  if (value.is(Kind::kBool)) return value.boolean ? 1 : 0;
  if (value.is(Kind::kBigInt)) fail_overflow();
  return value.integer;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) {
    if (a == INT64_MIN) fail_overflow();
    return -a;
  }
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0) fail("modulo by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("zero to a negative power");
    return real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return integer(exponent == 0 ? 1 : base);
  if (base == -1) return integer(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) fail_overflow();
  }
  return integer(result);
}

uint64_t magnitude(int64_t number) {
  return number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
}

// The quotient, rounded once.
double divide(int64_t a, int64_t b) {
  if (a == 0) return b < 0 ? -0.0 : 0.0;
  // So many bits that the last one of the quotient may stand for all that are cut off.
  unsigned __int128 dividend = magnitude(a);
  const int shift = 63 + __builtin_clzll(magnitude(a));
  dividend <<= shift;
  unsigned __int128 quotient = dividend / magnitude(b);
  if (dividend % magnitude(b) != 0) quotient |= 1;
  const double absolute = std::ldexp(static_cast<double>(quotient), -shift);
  return (a < 0) == (b < 0) ? absolute : -absolute;
}

Value calculate_integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kDivide:
      if (b == 0) fail("division by zero");
      return real(divide(a, b));
    case Operator::kFloorDivide:
      return integer(floor_divide(a, b));
    case Operator::kModulo:
      return integer(modulo(a, b));
    case Operator::kPower:
      return power(a, b);
  }
  if (overflows) fail_overflow();
  return integer(result);
}

// Python's quotient and rest of floats: the rest has the divisor's sign.
double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) return (b < 0) != (rest < 0) ? rest + b : rest;
  return std::copysign(0.0, b);
}

double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value calculate_floats(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return real(a + b);
    case Operator::kSubtract:
      return real(a - b);
    case Operator::kMultiply:
      return real(a * b);
    case Operator::kDivide:
      if (b == 0) fail("division by zero");
      return real(a / b);
    case Operator::kFloorDivide:
      if (b == 0) fail("division by zero");
      return real(float_floor_divide(a, b));
    case Operator::kModulo:
      if (b == 0) fail("modulo by zero");
      return real(float_modulo(a, b));
    case Operator::kPower: {
      if (a == 0 && b < 0) fail("zero to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) {
        fail("a negative number to a fractional power");
      }
      if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("a number is too large");
      return real(result);
    }
  }
  return none();
}

Value concatenate(Workspace& workspace, const Value& a, const Value& b) {
  if (a.is_text()) {
    const bool is_markup = a.text->is_markup || b.text->is_markup;
    TextBuilder out(workspace);
    if (!is_markup) {
      out.append(*b.text);
      return text_value(concatenate(workspace, *a.text, out));
    }
    out.append(*escape_html(workspace, *a.text));
    out.append(*escape_html(workspace, *b.text));
    return text_value(with_markup(workspace, *out.finish(workspace), true));
  }
  const auto& left = a.sequence->items;
  const auto& right = b.sequence->items;
  Values items(workspace);
  items.reserve(left.size() + right.size());
  workspace.tick(static_cast<int64_t>((left.size() + right.size()) / 8));
  items.insert(items.end(), left.begin(), left.end());
  items.insert(items.end(), right.begin(), right.end());
  return a.is(Kind::kList) ? make_list(workspace, items)
                           : make_tuple(workspace, std::span<const Value>(items));
}

Value repeat(Workspace& workspace, const Value& what, int64_t n) {
  const auto times = static_cast<size_t>(std::max<int64_t>(n, 0));
  if (what.is_text()) {
    TextBuilder out(workspace);
    out.append_repeated(*what.text, times);
    return text_value(with_markup(workspace, *out.finish(workspace), what.text->is_markup));
  }
  const auto& items = what.sequence->items;
  if (!items.empty() && times > SIZE_MAX / sizeof(Value) / items.size())
    fail("makes too long a list");
  Values repeated(workspace);
  repeated.reserve(items.size() * times);
  for (size_t i = 0; i < times && !items.empty(); ++i) {
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return what.is(Kind::kList) ? make_list(workspace, repeated)
                              : make_tuple(workspace, std::span<const Value>(repeated));
}

bool is_repeatable(const Value& value) {
  return value.is_text() || value.is(Kind::kList) || value.is(Kind::kTuple);
}

}  // namespace

void require_defined(const Value& value) {
  if (value.is(Kind::kUndefined)) fail("{}", value.undefined->what);
}

bool truth(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.real != 0;
    case Kind::kText:
      return !value.text->bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.sequence->items.empty();
    case Kind::kDict:
      return value.dict->size > 0;
    case Kind::kDictView:
      return value.view->dict->size > 0;
    case Kind::kRange:
      return value.range->size > 0;
    default:
      return true;
  }
}

bool same(const Value& a, const Value& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kMissing:
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kText:
      return a.text->bytes.data() == b.text->bytes.data() &&
             a.text->bytes.size() == b.text->bytes.size();
    default:
      return a.big == b.big;  // the same pointer, integer or bits of a float
  }
}

bool equal(Workspace& workspace, const Value& a, const Value& b) {
  workspace.tick();
  if (a.is_number() && b.is_number()) return wide(a) == wide(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      workspace.tick_bytes(a.text->bytes.size());
      return a.text->bytes == b.text->bytes;
    case Kind::kList:
    case Kind::kTuple:
      workspace.check_stack();
      return equal_items(workspace, a.sequence->items, b.sequence->items);
    case Kind::kDict:
      workspace.check_stack();
      return equal_dicts(workspace, *a.dict, *b.dict);
    case Kind::kRange:
      return equal_ranges(*a.range, *b.range);
    case Kind::kMethod:
      return same(a.method->self, b.method->self) && a.method->name == b.method->name;
    default:
      return same(a, b);
  }
}

bool less(Workspace& workspace, const Value& a, const Value& b) {
  workspace.tick();
  if (a.is_number() && b.is_number()) return wide(a) < wide(b);
  if (a.kind != b.kind) fail_order(a, b);
  if (a.is_text()) {
    workspace.tick_bytes(a.text->bytes.size());
    // UTF-8 sorts as its code points do.
    return a.text->bytes < b.text->bytes;
  }
  if (!a.is(Kind::kList) && !a.is(Kind::kTuple)) fail_order(a, b);
  workspace.check_stack();
  const auto& left = a.sequence->items;
  const auto& right = b.sequence->items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!equal(workspace, left[i], right[i])) return less(workspace, left[i], right[i]);
  }
  return left.size() < right.size();
}

bool contains(Workspace& workspace, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kText:
      if (!item.is_text()) fail("a {} cannot stand in a str", type_name(item));
      workspace.tick_bytes(container.text->bytes.size());
      return find(container.text->bytes, item.text->bytes) != std::string_view::npos;
    case Kind::kDict:
      return find(workspace, *container.dict, item) != nullptr;
    case Kind::kDictView:
      if (container.view->part == DictView::Part::kKeys) {
        return find(workspace, *container.view->dict, item) != nullptr;
      }
      break;
    default:
      break;
  }
  Iteration iteration(workspace, container);
  for (Value each; iteration.next(workspace, each);) {
    if (same(each, item) || equal(workspace, each, item)) return true;
  }
  return false;
}

bool compare(Workspace& workspace, Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(workspace, a, b);
    case Comparison::kNotEqual:
      return !equal(workspace, a, b);
    case Comparison::kLess:
      return less(workspace, a, b);
    case Comparison::kGreater:
      return less(workspace, b, a);
    case Comparison::kLessEqual:
      return less(workspace, a, b) || equal(workspace, a, b);
    case Comparison::kGreaterEqual:
      return less(workspace, b, a) || equal(workspace, a, b);
    case Comparison::kIn:
      return contains(workspace, b, a);
    case Comparison::kNotIn:
      return !contains(workspace, b, a);
  }
  return false;
}

size_t hash(Workspace& workspace, const Value& value) {
  workspace.tick();
  switch (value.kind) {
    case Kind::kBool:
      return std::hash<int64_t>()(value.boolean ? 1 : 0);
    case Kind::kInt:
      return std::hash<int64_t>()(value.integer);
    case Kind::kFloat: {
      const bool is_whole =
          value.real >= -0x1p63 && value.real < 0x1p63 && std::floor(value.real) == value.real;
      return is_whole ? std::hash<int64_t>()(static_cast<int64_t>(value.real))
                      : std::hash<double>()(value.real);
    }
    case Kind::kBigInt:
      return std::hash<double>()(static_cast<double>(value.big));
    case Kind::kText:
      workspace.tick_bytes(value.text->bytes.size());
      return std::hash<std::string_view>()(value.text->bytes);
    case Kind::kTuple: {
      workspace.check_stack();
      size_t combined = value.sequence->items.size();
      for (const Value& item : value.sequence->items) {
        combined = combined * 1000003 ^ hash(workspace, item);
      }
      return combined;
    }
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kRange:
      return static_cast<size_t>(value.kind);
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      fail("a {} cannot be a key", type_name(value));
    default:
      return std::hash<uint64_t>()(value.big);
  }
}

double as_real(const Value& value) { return static_cast<double>(wide(value)); }

int64_t as_index(const Value& value, std::string_view what) {
  require_defined(value);
  if (value.is(Kind::kBool)) return value.boolean ? 1 : 0;
  if (!value.is(Kind::kInt)) fail("{} must be an integer, not a {}", what, type_name(value));
  return value.integer;
}

Value calculate(Workspace& workspace, Operator op, const Value& a, const Value& b) {
  require_defined(a);
  if (op == Operator::kModulo && a.is_text()) return format_percent(workspace, *a.text, b);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) {
      return calculate_floats(op, as_real(a), as_real(b));
    }
    return calculate_integers(op, as_integer(a), as_integer(b));
  }
  if (op == Operator::kAdd && a.kind == b.kind && is_repeatable(a)) {
    return concatenate(workspace, a, b);
  }
  if (op == Operator::kMultiply) {
    if (is_repeatable(a) && b.is_integer()) return repeat(workspace, a, as_integer(b));
    if (a.is_integer() && is_repeatable(b)) return repeat(workspace, b, as_integer(a));
  }
  fail("{} does not work on a {} and a {}", symbol(op), type_name(a), type_name(b));
}

Value negate(const Value& value) {
  require_defined(value);
  if (value.is(Kind::kFloat)) return real(-value.real);
  if (!value.is_integer()) fail("- does not work on a {}", type_name(value));
  const int64_t number = as_integer(value);
  if (number == INT64_MIN) fail_overflow();
  return integer(-number);
}

Value plus(const Value& value) {
  require_defined(value);
  if (value.is(Kind::kFloat) || value.is(Kind::kBigInt)) return value;
  if (!value.is_integer()) fail("+ does not work on a {}", type_name(value));
  return integer(as_integer(value));
}

}  // namespace pagoda::model::jinja
