// The methods of texts, lists, tuples, dicts and ranges that a template may call.
#pragma once

#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

struct MethodEntry {
  std::string_view name;
  Value (*call)(Workspace&, const Value& self, const Arguments&) = nullptr;
};

// Null if values of this kind have no such method.
const MethodEntry* find_method(Kind kind, std::string_view name);

// Methods that change a list or dict: the sandbox hides them, and what it gives in their place is
// undefined.
bool is_changing_method(Kind kind, std::string_view name);

// Defined in text_methods.cc.
const MethodEntry* find_text_method(std::string_view name);

}  // namespace pagoda::model::jinja
