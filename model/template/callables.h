// Macros, the variable `loop`, and the arguments of calls.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

struct MacroCode;
struct Activation;
class Interpreter;
struct ForStatement;

// A macro, or the body of a call block, with the variables it was defined among.
struct Macro {
  const MacroCode* code = nullptr;
  Activation* outer = nullptr;
};

// The state of one run of a for loop. It looks one item ahead when it is asked for `last`.
struct Loop {
  const ForStatement* statement = nullptr;
  Activation* outer = nullptr;            // the variables of the function that the loop stands in
  Activation* test_activation = nullptr;  // those of the loop's `if`
  // The next item that passes the loop's `if`.
  bool (*pull)(Interpreter&, Loop&, Value& item) = nullptr;
  bool (*pull_plain)(Interpreter&, Loop&, Value& item) = nullptr;  // the next item, untested
  Interpreter* interpreter = nullptr;
  Iteration iteration{};
  Value iterable{};  // what has a length, if it does
  Value after{};     // the item looked ahead at; missing: not looked, or none left
  Value current{};
  Value before{};
  Value last_changed{};
  int64_t index0 = -1;
  int64_t size = -1;  // -1: not known yet
  int64_t depth0 = 0;

  bool next(Value& item);
};

Value loop_attribute(Workspace& workspace, const Value& loop, std::string_view name);
Value macro_attribute(Workspace& workspace, const Macro& macro, std::string_view name);
// repr() of a macro or loop.
void append_callable(Workspace& workspace, TextBuilder& out, const Value& value);

// Sorts the arguments of a call to parameters, as Python does: result[i] is missing where
// names[i] was not given. The first `n_required` must be.
void bind_arguments(std::string_view callee, const Arguments& arguments,
                    std::span<const std::string_view> names, size_t n_required,
                    std::span<Value> result);
template <size_t N>
std::array<Value, N> bind(std::string_view callee, const Arguments& arguments,
                          const std::array<std::string_view, N>& names, size_t n_required = 0) {
  std::array<Value, N> result;
  bind_arguments(callee, arguments, names, n_required, result);
  return result;
}
// Arguments that may be left out.
inline bool is_given(const Value& value) { return !value.is_missing() && !value.is(Kind::kNone); }
bool flag(const Value& value, bool otherwise = false);

// The entry of a table that has this name; null if none has it.
template <typename Table>
auto find_entry(const Table& table, std::string_view name) -> decltype(table.data()) {
  for (const auto& entry : table) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// For methods that take no argument by name.
template <size_t N>
std::array<Value, N> bind_positional(std::string_view callee, const Arguments& arguments,
                                     const std::array<std::string_view, N>& names,
                                     size_t n_required = 0) {
  if (!arguments.named.empty()) fail("{}() takes no arguments by name", callee);
  return bind(callee, arguments, names, n_required);
}

}  // namespace pagoda::model::jinja
