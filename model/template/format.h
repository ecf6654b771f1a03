// Text made by a format: the operator %, str.format, tojson, escaping for HTML and URLs, dates.
#pragma once

#include <cstdint>
#include <string_view>

#include "model/template/value.h"

namespace pagoda::model::jinja {

// format % values.
Value format_percent(Workspace& workspace, const Text& format, const Value& values);
// format.format(arguments).
Value format_braces(Workspace& workspace, const Text& format, const Arguments& arguments);

// One number or text by a format such as "08.3f" or ">10" (Python's format()).
void append_formatted(Workspace& workspace, TextBuilder& out, const Value& value,
                      std::string_view spec);

const Text* escape_html(Workspace& workspace, const Text& text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  const Text* indent = nullptr;  // null: on one line
  const Text* item_separator = nullptr;
  const Text* key_separator = nullptr;
};
// As json.dumps does.
const Text* dump_json(Workspace& workspace, const Value& value, const JsonStyle& style);

// datetime.strftime at a time in UTC.
const Text* format_time(Workspace& workspace, const Text& format, int64_t unix_s);

}  // namespace pagoda::model::jinja
