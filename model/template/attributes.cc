// Attributes, items and slices (operations.h).
#include <algorithm>

#include "model/template/callables.h"
#include "model/template/methods.h"
#include "model/template/operations.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

Value unsafe_attribute(Workspace& workspace, const Value& object, std::string_view name) {
  return undefined(workspace, message("the attribute '{}' of a {} may not be used in a template",
                                      name, type_name(object)));
}

Value range_attribute(const Range& range, std::string_view name) {
  if (name == "start") return integer(range.start);
  if (name == "stop") return integer(range.stop);
  if (name == "step") return integer(range.step);
  return {};
}

// What getattr() would find; missing if nothing.
Value own_attribute(Workspace& workspace, const Value& object, std::string_view name) {
  require_defined(object);
  Value found;
  switch (object.kind) {
    case Kind::kNamespace:
      if (const Value* value = find(workspace, *object.dict, name)) found = *value;
      break;
    case Kind::kLoop:
      found = loop_attribute(workspace, object, name);
      break;
    case Kind::kMacro:
      found = macro_attribute(workspace, *object.macro, name);
      break;
    case Kind::kRange:
      found = range_attribute(*object.range, name);
      break;
    case Kind::kTuple:
      if (object.sequence->is_group && name == "grouper") found = object.sequence->items[0];
      if (object.sequence->is_group && name == "list") found = object.sequence->items[1];
      break;
    case Kind::kCycler:
      if (name == "current") found = object.cycler->items[object.cycler->position];
      break;
    default:
      break;
  }
  if (found.is_missing()) {
    if (is_changing_method(object.kind, name)) return unsafe_attribute(workspace, object, name);
    if (const MethodEntry* method = find_method(object.kind, name)) {
      found = {.kind = Kind::kMethod,
               .method = workspace.make<Method>(Method{object, method->name, method->call})};
    }
  }
  if (!found.is_missing() && name.starts_with('_'))
    return unsafe_attribute(workspace, object, name);
  return found;
}

const Value* sequence_item(std::span<const Value> items, int64_t index) {
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  return index >= 0 && index < size ? &items[static_cast<size_t>(index)] : nullptr;
}

Value text_item(Workspace& workspace, const Text& text, int64_t index) {
  const auto size = static_cast<int64_t>(length(workspace, text));
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  const size_t begin = offset_of(workspace, text, static_cast<size_t>(index));
  const size_t len = first_character(text.bytes.substr(begin)).len;
  return text_value(sub_text(workspace, text, begin, begin + len));
}

bool is_hashable(Workspace& workspace, const Value& key) {
  if (key.is(Kind::kTuple)) {
    workspace.tick();
    workspace.check_stack();
    const auto& items = key.sequence->items;
    return std::all_of(items.begin(), items.end(),
                       [&](const Value& item) { return is_hashable(workspace, item); });
  }
  return !key.is(Kind::kList) && !key.is(Kind::kDict) && !key.is(Kind::kDictView);
}

// What object[key] would find; missing if nothing.
Value own_item(Workspace& workspace, const Value& object, const Value& key) {
  require_defined(object);
  if (object.is(Kind::kDict)) {
    if (!is_hashable(workspace, key)) return {};
    const Value* value = find(workspace, *object.dict, key);
    return value != nullptr ? *value : Value{};
  }
  if (!key.is(Kind::kInt) && !key.is(Kind::kBool)) return {};
  const int64_t index = key.is(Kind::kInt) ? key.integer : (key.boolean ? 1 : 0);
  switch (object.kind) {
    case Kind::kList:
    case Kind::kTuple: {
      const Value* value = sequence_item(object.sequence->items, index);
      return value != nullptr ? *value : Value{};
    }
    case Kind::kText:
      return text_item(workspace, *object.text, index);
    case Kind::kRange: {
      const Range& range = *object.range;
      const int64_t at = index < 0 ? index + range.size : index;
      return at >= 0 && at < range.size ? range_item(range, at) : Value{};
    }
    default:
      return {};
  }
}

int64_t slice_index(const Value& value) {
  if (!value.is(Kind::kInt) && !value.is(Kind::kBool)) {
    require_defined(value);
    fail("a slice takes integers, not a {}", type_name(value));
  }
  return value.is(Kind::kInt) ? value.integer : (value.boolean ? 1 : 0);
}

Value slice_text(Workspace& workspace, const Text& text, const SliceBounds& bounds) {
  const auto at = [&](int64_t index) {
    return offset_of(workspace, text, static_cast<size_t>(index));
  };
  if (bounds.step == 1) {
    const int64_t stop = std::max(bounds.start, bounds.stop);
    return text_value(sub_text(workspace, text, at(bounds.start), at(stop)));
  }
  // Offsets of all characters, so that any step costs the same.
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  Temporary<size_t> offsets(workspace);
  for (size_t offset = 0; offset < text.bytes.size();
       offset += first_character(text.bytes.substr(offset)).len) {
    offsets.push_back(offset);
  }
  offsets.push_back(text.bytes.size());
  TextBuilder out(workspace);
  for (int64_t i = 0, index = bounds.start; i < bounds.size; ++i, index += bounds.step) {
    const auto character = static_cast<size_t>(index);
    out.append(text, offsets[character], offsets[character + 1]);
  }
  return text_value(with_markup(workspace, *out.finish(workspace), text.is_markup));
}

}  // namespace

SliceBounds slice_bounds(int64_t size, const Value& start, const Value& stop, const Value& step) {
  SliceBounds bounds;
  bounds.step = step.is(Kind::kNone) ? 1 : slice_index(step);
  if (bounds.step == 0) fail("a slice cannot have the step zero");
  const bool backwards = bounds.step < 0;
  const auto clamp = [&](const Value& value, int64_t otherwise) {
    if (value.is(Kind::kNone)) return otherwise;
    int64_t index = slice_index(value);
    if (index < 0) index = index < -size ? -1 : index + size;
    const int64_t low = backwards ? -1 : 0;
    const int64_t high = backwards ? size - 1 : size;
    return std::clamp(index, std::min(low, high), high);
  };
  bounds.start = clamp(start, backwards ? size - 1 : 0);
  bounds.stop = clamp(stop, backwards ? -1 : size);
  if (!backwards && bounds.start < bounds.stop) {
    bounds.size = (bounds.stop - bounds.start - 1) / bounds.step + 1;
  } else if (backwards && bounds.start > bounds.stop) {
    // In unsigned, for the negative of the least integer.
    const uint64_t step_down = uint64_t{0} - static_cast<uint64_t>(bounds.step);
    const auto distance = static_cast<uint64_t>(bounds.start - bounds.stop - 1);
    bounds.size = static_cast<int64_t>(distance / step_down) + 1;
  }
  // A step past the end would overflow when it is multiplied.
  if (bounds.size <= 1) bounds.step = backwards ? -1 : std::min<int64_t>(bounds.step, INT32_MAX);
  return bounds;
}

Value attribute(Workspace& workspace, const Value& object, std::string_view name) {
  Value found = own_attribute(workspace, object, name);
  if (found.is_missing() && object.is(Kind::kDict)) {
    if (const Value* value = find(workspace, *object.dict, name)) found = *value;
  }
  if (!found.is_missing()) return found;
  return undefined(workspace, message("a {} has no attribute '{}'", type_name(object), name));
}

Value attribute_only(Workspace& workspace, const Value& object, std::string_view name) {
  const Value found = own_attribute(workspace, object, name);
  if (!found.is_missing()) return found;
  return undefined(workspace, message("a {} has no attribute '{}'", type_name(object), name));
}

Value item(Workspace& workspace, const Value& object, const Value& key) {
  Value found = own_item(workspace, object, key);
  if (found.is_missing() && key.is_text())
    found = own_attribute(workspace, object, key.text->bytes);
  if (!found.is_missing()) return found;
  return undefined(workspace,
                   message("a {} has no element {}", type_name(object), shown(workspace, key)));
}

Value slice(Workspace& workspace, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  require_defined(object);
  switch (object.kind) {
    case Kind::kText: {
      const Text& text = *object.text;
      const auto size = static_cast<int64_t>(length(workspace, text));
      return slice_text(workspace, text, slice_bounds(size, start, stop, step));
    }
    case Kind::kList:
    case Kind::kTuple: {
      const auto& items = object.sequence->items;
      const SliceBounds bounds =
          slice_bounds(static_cast<int64_t>(items.size()), start, stop, step);
      Values cut(workspace);
      cut.reserve(static_cast<size_t>(bounds.size));
      workspace.tick(bounds.size / 8);
      for (int64_t i = 0, at = bounds.start; i < bounds.size; ++i, at += bounds.step) {
        cut.push_back(items[static_cast<size_t>(at)]);
      }
      return object.is(Kind::kList) ? make_list(workspace, cut)
                                    : make_tuple(workspace, std::span<const Value>(cut));
    }
    case Kind::kRange: {
      const Range& range = *object.range;
      const SliceBounds bounds = slice_bounds(range.size, start, stop, step);
      Range cut;
      if (__builtin_mul_overflow(range.step, bounds.step, &cut.step) ||
          __builtin_mul_overflow(bounds.start, range.step, &cut.start) ||
          __builtin_add_overflow(range.start, cut.start, &cut.start) ||
          __builtin_mul_overflow(bounds.stop, range.step, &cut.stop) ||
          __builtin_add_overflow(range.start, cut.stop, &cut.stop)) {
        fail("an integer does not fit into 64 bits");
      }
      cut.size = bounds.size;
      return {.kind = Kind::kRange, .range = workspace.make<Range>(cut)};
    }
    default:
      fail("a {} cannot be sliced", type_name(object));
  }
}

}  // namespace pagoda::model::jinja
