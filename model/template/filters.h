// Filters (value|name) and tests (value is name).
#pragma once

#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

struct FilterEntry {
  std::string_view name;
  Value (*call)(Workspace&, const Value& value, const Arguments&) = nullptr;
};

struct TestEntry {
  std::string_view name;
  bool (*call)(Workspace&, const Value& value, const Arguments&) = nullptr;
};

// Null if there is none of that name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);

// The tables that find_filter looks into, one a file.
const FilterEntry* find_text_filter(std::string_view name);
const FilterEntry* find_sequence_filter(std::string_view name);
const FilterEntry* find_selecting_filter(std::string_view name);

}  // namespace pagoda::model::jinja
