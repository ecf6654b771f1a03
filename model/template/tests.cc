// Tests, the names after `is` (filters.h).
#include <array>

#include "model/template/callables.h"
#include "model/template/filters.h"
#include "model/template/operations.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

template <bool (*test)(const Value&)>
bool simple(Workspace&, const Value& value, const Arguments& arguments) {
  bind<0>("the test", arguments, {});
  return test(value);
}

template <Comparison comparison>
bool comparing(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [other] = bind_positional<1>("the test", arguments, {"other"}, 1);
  return compare(workspace, comparison, value, other);
}

bool is_defined(const Value& value) { return !value.is(Kind::kUndefined); }
bool is_undefined(const Value& value) { return value.is(Kind::kUndefined); }
bool is_none(const Value& value) { return value.is(Kind::kNone); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.boolean; }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.boolean; }
bool is_integer(const Value& value) { return value.is(Kind::kInt) || value.is(Kind::kBigInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_escaped(const Value& value) { return value.is_text() && value.text->is_markup; }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_iterable(const Value& value) { return Iteration::accepts(value); }

// What has a length and items by number or key. Undefined has both, as an object of Python.
bool is_sequence(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("sequence", arguments, {});
  return value.is_text() || (length(workspace, value) && !value.is(Kind::kDictView));
}

bool is_callable(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kMacro:
    case Kind::kLoop:
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kJoiner:
      return true;
    default:
      return false;
  }
}

bool has_rest(Workspace& workspace, const Value& value, const Value& divisor, int64_t rest) {
  const Value left = calculate(workspace, Operator::kModulo, value, divisor);
  return equal(workspace, left, integer(rest));
}

bool is_odd(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("odd", arguments, {});
  return has_rest(workspace, value, integer(2), 1);
}
bool is_even(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("even", arguments, {});
  return has_rest(workspace, value, integer(2), 0);
}
bool is_divisible(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [divisor] = bind<1>("divisibleby", arguments, {"num"}, 1);
  return has_rest(workspace, value, divisor, 0);
}

bool is_lower_case(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("lower", arguments, {});
  return is_lower_text(workspace, *to_text(workspace, value));
}
bool is_upper_case(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("upper", arguments, {});
  return is_upper_text(workspace, *to_text(workspace, value));
}

bool is_same(Workspace&, const Value& value, const Arguments& arguments) {
  const auto [other] = bind<1>("sameas", arguments, {"other"}, 1);
  return same(value, other);
}

bool is_in(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [sequence] = bind<1>("in", arguments, {"seq"}, 1);
  return contains(workspace, sequence, value);
}

bool is_filter(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("filter", arguments, {});
  hash(workspace, value);  // an error for what cannot be a name in Python either
  return value.is_text() && find_filter(value.text->bytes) != nullptr;
}
bool is_test(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("test", arguments, {});
  hash(workspace, value);
  return value.is_text() && find_test(value.text->bytes) != nullptr;
}

constexpr std::array kTests = {
    TestEntry{"odd", is_odd},
    TestEntry{"even", is_even},
    TestEntry{"divisibleby", is_divisible},
    TestEntry{"defined", simple<is_defined>},
    TestEntry{"undefined", simple<is_undefined>},
    TestEntry{"filter", is_filter},
    TestEntry{"test", is_test},
    TestEntry{"none", simple<is_none>},
    TestEntry{"boolean", simple<is_boolean>},
    TestEntry{"false", simple<is_false>},
    TestEntry{"true", simple<is_true>},
    TestEntry{"integer", simple<is_integer>},
    TestEntry{"float", simple<is_float>},
    TestEntry{"lower", is_lower_case},
    TestEntry{"upper", is_upper_case},
    TestEntry{"string", simple<is_string>},
    TestEntry{"mapping", simple<is_mapping>},
    TestEntry{"number", simple<is_number>},
    TestEntry{"sequence", is_sequence},
    TestEntry{"iterable", simple<is_iterable>},
    TestEntry{"callable", simple<is_callable>},
    TestEntry{"sameas", is_same},
    TestEntry{"escaped", simple<is_escaped>},
    TestEntry{"in", is_in},
    TestEntry{"==", comparing<Comparison::kEqual>},
    TestEntry{"eq", comparing<Comparison::kEqual>},
    TestEntry{"equalto", comparing<Comparison::kEqual>},
    TestEntry{"!=", comparing<Comparison::kNotEqual>},
    TestEntry{"ne", comparing<Comparison::kNotEqual>},
    TestEntry{">", comparing<Comparison::kGreater>},
    TestEntry{"gt", comparing<Comparison::kGreater>},
    TestEntry{"greaterthan", comparing<Comparison::kGreater>},
    TestEntry{">=", comparing<Comparison::kGreaterEqual>},
    TestEntry{"ge", comparing<Comparison::kGreaterEqual>},
    TestEntry{"<", comparing<Comparison::kLess>},
    TestEntry{"lt", comparing<Comparison::kLess>},
    TestEntry{"lessthan", comparing<Comparison::kLess>},
    TestEntry{"<=", comparing<Comparison::kLessEqual>},
    TestEntry{"le", comparing<Comparison::kLessEqual>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) { return find_entry(kTests, name); }

}  // namespace pagoda::model::jinja
