// The values of a template: Python's, as far as templates can make them. A value is two words;
// what it points to lies in a workspace or outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/template/text.h"
#include "model/template/workspace.h"

namespace pagoda::model::jinja {

enum class Kind : uint8_t {
  kMissing,  // no value at all: an unset variable, an argument not given; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // 2^63 to 2^64 - 1, which JSON may hold; can be printed and compared, not computed with
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kDictView,
  kRange,
  kIterator,
  kMacro,
  kLoop,
  kMethod,
  kFunction,
  kCycler,
  kJoiner,
};

struct Undefined;
struct Sequence;
struct Dict;
struct DictView;
struct Range;
struct Iterator;
struct Macro;
struct Loop;
struct Method;
struct Function;
struct Cycler;
struct Joiner;

struct Value {
  Kind kind = Kind::kMissing;
  union {
    bool boolean;
    int64_t integer = 0;
    uint64_t big;
    double real;
    const Undefined* undefined;
    const Text* text;
    const Sequence* sequence;  // kList, kTuple
    Dict* dict;                // kDict, kNamespace
    const DictView* view;
    const Range* range;
    Iterator* iterator;
    const Macro* macro;
    Loop* loop;
    const Method* method;
    const Function* function;
    Cycler* cycler;
    Joiner* joiner;
  };

  bool is(Kind k) const { return kind == k; }
  bool is_missing() const { return kind == Kind::kMissing; }
  bool is_text() const { return kind == Kind::kText; }
  // Python's bool is an int.
  bool is_integer() const {
    return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kBigInt;
  }
  bool is_number() const { return is_integer() || kind == Kind::kFloat; }
};

inline Value none() {
  Value value{};
  value.kind = Kind::kNone;
  return value;
}
inline Value boolean(bool b) { return {.kind = Kind::kBool, .boolean = b}; }
inline Value integer(int64_t i) { return {.kind = Kind::kInt, .integer = i}; }
inline Value real(double d) { return {.kind = Kind::kFloat, .real = d}; }
inline Value text_value(const Text* text) { return {.kind = Kind::kText, .text = text}; }
inline Value dict_value(Dict* dict) { return {.kind = Kind::kDict, .dict = dict}; }

// Values that are being put together.
using Values = Temporary<Value>;

// jinja2's default Undefined: prints nothing, holds nothing, and is an error in any other use.
struct Undefined {
  std::string_view what{};  // "'x' is undefined", …
};

struct Sequence {
  std::span<const Value> items{};
  bool is_group = false;  // of the filter groupby: has the attributes grouper and list
};

// Keys in the order in which they came. Grows only while it is built, and as a namespace.
struct Dict {
  struct Entry {
    Value key;
    Value value;
  };

  Entry* entries = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
  uint32_t* index = nullptr;  // from hash to 1 + entry, 0: empty; only of larger ones
  uint32_t index_size = 0;    // a power of two

  std::span<const Entry> items() const { return {entries, size}; }
};

// Null if there is no such key. A key that has no hash (a list) is an error.
const Value* find(Workspace& workspace, const Dict& dict, const Value& key);
const Value* find(Workspace& workspace, const Dict& dict, std::string_view key);
void set(Workspace& workspace, Dict& dict, const Value& key, const Value& value);

struct DictView {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  const Dict* dict = nullptr;
  Part part = Part::kKeys;
};

struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size = 0;
};

// What lazy filters make: may be gone through once. The items are found at once; an error on the
// way waits until whoever goes through gets there, as it would in Python.
struct Iterator {
  std::span<const Value> items{};
  size_t position = 0;
  std::string_view error{};  // empty: none
  std::string_view type_name = "generator";
};

struct Cycler {
  std::span<const Value> items{};
  size_t position = 0;
};

struct Joiner {
  const Text* separator = nullptr;
  bool used = false;
};

struct Argument {
  std::string_view name{};
  Value value{};
  bool is_name_from_user = false;  // a key of a client's dict, by **
};

// What a call gives: positional ones, then named ones.
struct Arguments {
  std::span<const Value> positional{};
  std::span<const Argument> named{};
};

// A method of a text, list or dict, bound to it.
struct Method {
  Value self{};
  std::string_view name{};
  Value (*call)(Workspace&, const Value& self, const Arguments&) = nullptr;
};

// A global function such as range.
struct Function {
  std::string_view name{};
  Value (*call)(Workspace&, const Arguments&) = nullptr;
};

Value undefined(Workspace& workspace, std::string_view what);
Value make_list(Workspace& workspace, std::span<const Value> items);
Value make_tuple(Workspace& workspace, std::span<const Value> items);
Value make_iterator(Workspace& workspace, std::span<const Value> items,
                    std::string_view type_name = "generator", std::string_view error = {});
inline Value make_string(Workspace& workspace, std::string_view bytes, bool from_user = false) {
  return text_value(make_text(workspace, bytes, from_user));
}

// Borrows the strings of `json`.
Value from_json(Workspace& workspace, const nlohmann::ordered_json& json, bool from_user);
// An object whose texts under `checked_keys` are nobody's but the server's.
Value from_checked_json(Workspace& workspace, const nlohmann::ordered_json& object, bool from_user,
                        std::span<const std::string> checked_keys);

// Python's name of a value's type.
std::string_view type_name(const Value& value);

// Goes through an iterable. An error for a value that is none.
class Iteration {
 public:
  Iteration() = default;
  Iteration(Workspace& workspace, const Value& iterable);
  static bool accepts(const Value& value);

  bool next(Workspace& workspace, Value& item);

 private:
  Value source_{};
  size_t position_ = 0;
};

// All items of an iterable.
Values items_of(Workspace& workspace, const Value& iterable);

// len(), none for what has no length.
std::optional<int64_t> length(Workspace& workspace, const Value& value);

Value range_item(const Range& range, int64_t index);

}  // namespace pagoda::model::jinja
