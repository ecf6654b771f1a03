// What Python does with values: truth, order, arithmetic, attributes and items.
#pragma once

#include <cstddef>
#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

bool truth(const Value& value);
bool equal(Workspace& workspace, const Value& a, const Value& b);
// a < b; an error where Python has no order.
bool less(Workspace& workspace, const Value& a, const Value& b);
bool contains(Workspace& workspace, const Value& container, const Value& item);
bool compare(Workspace& workspace, Comparison comparison, const Value& a, const Value& b);
// `is`.
bool same(const Value& a, const Value& b);
// Equal values have equal hashes. An error for a list and other things that can change.
size_t hash(Workspace& workspace, const Value& value);

Value calculate(Workspace& workspace, Operator op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

// a.name and a[key] of a template: each tries the other when it finds nothing.
Value attribute(Workspace& workspace, const Value& object, std::string_view name);
// Only what Python's getattr() finds: no key of a dict.
Value attribute_only(Workspace& workspace, const Value& object, std::string_view name);
Value item(Workspace& workspace, const Value& object, const Value& key);
// a[start:stop:step]; none() where one is left out.
Value slice(Workspace& workspace, const Value& object, const Value& start, const Value& stop,
            const Value& step);

// An integer argument, as Python takes one: also True and False. `what` names it in the error.
int64_t as_index(const Value& value, std::string_view what);
double as_real(const Value& value);
// An error that says what is undefined, if it is.
void require_defined(const Value& value);

// The positions that a slice or a method with start and stop covers, clamped to [0, size].
struct SliceBounds {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size = 0;  // how many items
};
SliceBounds slice_bounds(int64_t size, const Value& start, const Value& stop, const Value& step);

}  // namespace pagoda::model::jinja
