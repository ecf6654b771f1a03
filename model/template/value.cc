#include "model/template/value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/template/operations.h"

namespace pagoda::model::jinja {

namespace {

constexpr uint32_t kUnindexed = 8;  // a dict of so many entries is searched from its start

uint32_t slot_of(const Dict& dict, size_t hash) {
  return static_cast<uint32_t>(hash ^ hash >> 32) & (dict.index_size - 1);
}

void add_to_index(Workspace& workspace, Dict& dict, uint32_t entry) {
  uint32_t slot = slot_of(dict, hash(workspace, dict.entries[entry].key));
  while (dict.index[slot] != 0) slot = (slot + 1) & (dict.index_size - 1);
  dict.index[slot] = entry + 1;
}

void rebuild_index(Workspace& workspace, Dict& dict) {
  dict.index_size = 4 * dict.capacity;
  const size_t n_bytes = dict.index_size * sizeof(uint32_t);
  dict.index = static_cast<uint32_t*>(workspace.allocate(n_bytes));
  std::memset(dict.index, 0, n_bytes);
  for (uint32_t i = 0; i < dict.size; ++i) add_to_index(workspace, dict, i);
}

Value* find_slot(Workspace& workspace, const Dict& dict, const Value& key) {
  const size_t key_hash = hash(workspace, key);
  if (dict.index == nullptr) {
    for (uint32_t i = 0; i < dict.size; ++i) {
      if (equal(workspace, dict.entries[i].key, key)) return &dict.entries[i].value;
    }
    return nullptr;
  }
  for (uint32_t slot = slot_of(dict, key_hash); dict.index[slot] != 0;
       slot = (slot + 1) & (dict.index_size - 1)) {
    workspace.tick();
    Dict::Entry& entry = dict.entries[dict.index[slot] - 1];
    if (equal(workspace, entry.key, key)) return &entry.value;
  }
  return nullptr;
}

}  // namespace

const Value* find(Workspace& workspace, const Dict& dict, const Value& key) {
  return find_slot(workspace, dict, key);
}

const Value* find(Workspace& workspace, const Dict& dict, std::string_view key) {
  workspace.tick_bytes(key.size());
  if (dict.index == nullptr) {
    for (const Dict::Entry& entry : dict.items()) {
      if (entry.key.is_text() && entry.key.text->bytes == key) return &entry.value;
    }
    return nullptr;
  }
  const Text text{.bytes = key};
  return find_slot(workspace, dict, text_value(&text));
}

void set(Workspace& workspace, Dict& dict, const Value& key, const Value& value) {
  if (Value* existing = find_slot(workspace, dict, key)) {
    *existing = value;
    return;
  }
  if (dict.size == dict.capacity) {
    const uint32_t capacity = dict.capacity == 0 ? 4 : 2 * dict.capacity;
    auto* entries = static_cast<Dict::Entry*>(workspace.allocate(capacity * sizeof(Dict::Entry)));
    std::uninitialized_copy_n(dict.entries, dict.size, entries);
    dict.entries = entries;
    dict.capacity = capacity;
    if (capacity > kUnindexed) rebuild_index(workspace, dict);
  }
  new (&dict.entries[dict.size]) Dict::Entry{key, value};
  ++dict.size;
  if (dict.index != nullptr) add_to_index(workspace, dict, dict.size - 1);
}

Value undefined(Workspace& workspace, std::string_view what) {
  return {.kind = Kind::kUndefined,
          .undefined = workspace.make<Undefined>(Undefined{workspace.copy(what)})};
}

Value make_list(Workspace& workspace, std::span<const Value> items) {
  return {.kind = Kind::kList, .sequence = workspace.make<Sequence>(workspace.copy(items))};
}

Value make_tuple(Workspace& workspace, std::span<const Value> items) {
  return {.kind = Kind::kTuple, .sequence = workspace.make<Sequence>(workspace.copy(items))};
}

Value make_iterator(Workspace& workspace, std::span<const Value> items, std::string_view type_name,
                    std::string_view error) {
  return {
      .kind = Kind::kIterator,
      .iterator = workspace.make<Iterator>(Iterator{
          .items = workspace.copy(items), .error = workspace.copy(error), .type_name = type_name})};
}

Value from_json(Workspace& workspace, const nlohmann::ordered_json& json, bool from_user) {
  using Type = nlohmann::ordered_json::value_t;
  workspace.tick();
  workspace.check_stack();
  switch (json.type()) {
    case Type::boolean:
      return boolean(json.get<bool>());
    case Type::number_integer:
      return integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number <= static_cast<uint64_t>(INT64_MAX)) return integer(static_cast<int64_t>(number));
      return {.kind = Kind::kBigInt, .big = number};
    }
    case Type::number_float:
      return real(json.get<double>());
    case Type::string:
      return text_value(view_text(workspace, json.get_ref<const std::string&>(), from_user));
    case Type::array: {
      Values items(workspace);
      items.reserve(json.size());
      for (const auto& item : json) {
        items.push_back(from_json(workspace, item, from_user));
      }
      return make_list(workspace, items);
    }
    case Type::object:
      return from_checked_json(workspace, json, from_user, {});
    case Type::null:
    case Type::binary:
    case Type::discarded:
      return none();
  }
  return none();
}

Value from_checked_json(Workspace& workspace, const nlohmann::ordered_json& object, bool from_user,
                        std::span<const std::string> checked_keys) {
  Dict* dict = workspace.make<Dict>();
  for (const auto& [key, item] : object.items()) {
    const bool is_checked =
        item.is_string() && std::ranges::find(checked_keys, key) != checked_keys.end();
    const Text* name = view_text(workspace, key, from_user);
    set(workspace, *dict, text_value(name), from_json(workspace, item, from_user && !is_checked));
  }
  return dict_value(dict);
}

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kDictView:
      switch (value.view->part) {
        case DictView::Part::kKeys:
          return "dict_keys";
        case DictView::Part::kValues:
          return "dict_values";
        case DictView::Part::kItems:
          return "dict_items";
      }
      return "dict_keys";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return value.iterator->type_name;
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

bool Iteration::accepts(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kMacro:
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner:
      return false;
  }
  return false;
}

Iteration::Iteration(Workspace&, const Value& iterable) : source_(iterable) {
  if (!accepts(iterable)) fail("a {} cannot be gone through", type_name(iterable));
  if (iterable.is(Kind::kLoop)) fail("the variable loop cannot be gone through");
}

bool Iteration::next(Workspace& workspace, Value& item) {
  workspace.tick();
  switch (source_.kind) {
    case Kind::kText: {
      const Text& text = *source_.text;
      if (position_ >= text.bytes.size()) return false;
      const size_t len = text.is_ascii ? 1 : first_character(text.bytes.substr(position_)).len;
      // The characters of an escaped text are plain ones.
      const Text* character = sub_text(workspace, text, position_, position_ + len);
      item = text_value(with_markup(workspace, *character, false));
      position_ += len;
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (position_ >= source_.sequence->items.size()) return false;
      item = source_.sequence->items[position_++];
      return true;
    case Kind::kDict:
      if (position_ >= source_.dict->size) return false;
      item = source_.dict->entries[position_++].key;
      return true;
    case Kind::kDictView: {
      if (position_ >= source_.view->dict->size) return false;
      const Dict::Entry& entry = source_.view->dict->entries[position_++];
      switch (source_.view->part) {
        case DictView::Part::kKeys:
          item = entry.key;
          return true;
        case DictView::Part::kValues:
          item = entry.value;
          return true;
        case DictView::Part::kItems: {
          const Value pair[] = {entry.key, entry.value};
          item = make_tuple(workspace, pair);
          return true;
        }
      }
      return false;
    }
    case Kind::kRange:
      if (static_cast<int64_t>(position_) >= source_.range->size) return false;
      item = range_item(*source_.range, static_cast<int64_t>(position_++));
      return true;
    case Kind::kIterator: {
      Iterator& iterator = *source_.iterator;
      if (iterator.position < iterator.items.size()) {
        item = iterator.items[iterator.position++];
        return true;
      }
      if (!iterator.error.empty()) fail("{}", std::exchange(iterator.error, {}));
      return false;
    }
    default:
      return false;
  }
}

Values items_of(Workspace& workspace, const Value& iterable) {
  Values items(workspace);
  Iteration iteration(workspace, iterable);
  for (Value item; iteration.next(workspace, item);) items.push_back(item);
  return items;
}

std::optional<int64_t> length(Workspace& workspace, const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      return static_cast<int64_t>(length(workspace, *value.text));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.sequence->items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict->size);
    case Kind::kDictView:
      return static_cast<int64_t>(value.view->dict->size);
    case Kind::kRange:
      return value.range->size;
    default:
      return std::nullopt;
  }
}

Value range_item(const Range& range, int64_t index) {
  // In unsigned, as a step may pass the largest integer on the way to a small one.
  return integer(
      static_cast<int64_t>(static_cast<uint64_t>(range.start) +
                           static_cast<uint64_t>(index) * static_cast<uint64_t>(range.step)));
}

}  // namespace pagoda::model::jinja
