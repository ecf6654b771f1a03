#include "model/template/paths.h"

#include <algorithm>

#include "model/template/literals.h"
#include "model/template/operations.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

Path::Path(Workspace& workspace, const Value& path, const Value& otherwise)
    : parts_(workspace), otherwise_(otherwise.is(Kind::kNone) ? Value{} : otherwise) {
  if (path.is_missing() || path.is(Kind::kNone)) return;
  if (!path.is_text()) {
    parts_.push_back(path);
    return;
  }
  const Text dot{.bytes = ".", .is_ascii = true};
  for (const Text* part : split(workspace, *path.text, &dot, -1)) {
    const bool is_number =
        !part->bytes.empty() && std::all_of(part->bytes.begin(), part->bytes.end(),
                                            [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(is_number ? integer(*parse_int(part->bytes, 10)) : text_value(part));
  }
}

Value Path::of(Workspace& workspace, Value value) const {
  for (const Value& part : parts_) {
    value = item(workspace, value, part);
    if (!otherwise_.is_missing() && value.is(Kind::kUndefined)) value = otherwise_;
  }
  return value;
}

SortKey::SortKey(Workspace& workspace, const Value& path, bool case_sensitive, bool several,
                 const Value& otherwise)
    : case_sensitive_(case_sensitive), several_(several) {
  if (!several || !path.is_text()) {
    paths_.emplace_back(workspace, path, otherwise);
    return;
  }
  const Text comma{.bytes = ",", .is_ascii = true};
  for (const Text* part : split(workspace, *path.text, &comma, -1)) {
    paths_.emplace_back(workspace, text_value(part), otherwise);
  }
}

Value SortKey::of(Workspace& workspace, const Value& item) const {
  Values keys(workspace);
  for (const Path& path : paths_) {
    Value key = path.of(workspace, item);
    if (!case_sensitive_ && key.is_text()) key = text_value(lower(workspace, *key.text));
    keys.push_back(key);
  }
  return several_ ? make_list(workspace, keys) : keys[0];
}

}  // namespace pagoda::model::jinja
