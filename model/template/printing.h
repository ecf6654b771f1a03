// str() and repr() of values, as Python writes them.
#pragma once

#include <string>

#include "model/template/value.h"

namespace pagoda::model::jinja {

// The shortest digits that read back as the same number: 1.0, 1e+16, inf.
std::string print_float(double number);
void append_str(Workspace& workspace, TextBuilder& out, const Value& value);
void append_repr(Workspace& workspace, TextBuilder& out, const Value& value);
// str(): the text itself if it is one.
const Text* to_text(Workspace& workspace, const Value& value);
// A short form for error messages.
std::string shown(Workspace& workspace, const Value& value);

}  // namespace pagoda::model::jinja
