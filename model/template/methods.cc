#include "model/template/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/template/callables.h"
#include "model/template/operations.h"

namespace pagoda::model::jinja {

namespace {

Value make_view(Workspace& workspace, const Value& self, DictView::Part part) {
  return {.kind = Kind::kDictView, .view = workspace.make<DictView>(DictView{self.dict, part})};
}

template <DictView::Part part>
Value dict_view(Workspace& workspace, const Value& self, const Arguments& arguments) {
  bind<0>("the method", arguments, {});
  return make_view(workspace, self, part);
}

Value dict_get(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = bind_positional<2>("get", arguments, {"key", "default"}, 1);
  if (const Value* found = find(workspace, *self.dict, key)) return *found;
  return otherwise.is_missing() ? none() : otherwise;
}

Value dict_copy(Workspace& workspace, const Value& self, const Arguments& arguments) {
  bind<0>("copy", arguments, {});
  Dict* copy = workspace.make<Dict>();
  for (const Dict::Entry& entry : self.dict->items()) set(workspace, *copy, entry.key, entry.value);
  return dict_value(copy);
}

Value list_copy(Workspace&, const Value& self, const Arguments& arguments) {
  bind<0>("copy", arguments, {});
  return self;  // nothing can change a list
}

Value sequence_count(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [wanted] = bind_positional<1>("count", arguments, {"value"}, 1);
  int64_t count = 0;
  Iteration iteration(workspace, self);
  for (Value item; iteration.next(workspace, item);) {
    if (same(item, wanted) || equal(workspace, item, wanted)) ++count;
  }
  return integer(count);
}

Value sequence_index(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [wanted, start, stop] =
      bind_positional<3>("index", arguments, {"value", "start", "stop"}, 1);
  const auto given = [](const Value& value) { return value.is_missing() ? none() : value; };
  const SliceBounds bounds =
      slice_bounds(*length(workspace, self), given(start), given(stop), none());
  Iteration iteration(workspace, self);
  Value item;
  for (int64_t i = 0; iteration.next(workspace, item) && i < bounds.stop; ++i) {
    if (i < bounds.start) continue;
    if (same(item, wanted) || equal(workspace, item, wanted)) return integer(i);
  }
  fail("index() does not find the value");
}

Value cycler_next(Workspace&, const Value& self, const Arguments& arguments) {
  bind<0>("next", arguments, {});
  Cycler& cycler = *self.cycler;
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(Workspace&, const Value& self, const Arguments& arguments) {
  bind<0>("reset", arguments, {});
  self.cycler->position = 0;
  return none();
}

Value float_is_integer(Workspace&, const Value& self, const Arguments& arguments) {
  bind<0>("is_integer", arguments, {});
  return boolean(std::isfinite(self.real) && std::floor(self.real) == self.real);
}

Value unsupported(Workspace&, const Value& self, const Arguments&) {
  fail("this method of a {} is not supported in templates", type_name(self));
}

constexpr std::array kDictMethods = {
    MethodEntry{"copy", dict_copy},
    MethodEntry{"fromkeys", unsupported},
    MethodEntry{"get", dict_get},
    MethodEntry{"items", dict_view<DictView::Part::kItems>},
    MethodEntry{"keys", dict_view<DictView::Part::kKeys>},
    MethodEntry{"values", dict_view<DictView::Part::kValues>},
};
constexpr std::array kSequenceMethods = {
    MethodEntry{"count", sequence_count}, MethodEntry{"index", sequence_index},
    MethodEntry{"copy", list_copy},  // the last: only a list has it
};
constexpr std::array kCyclerMethods = {
    MethodEntry{"next", cycler_next},
    MethodEntry{"reset", cycler_reset},
};
constexpr std::array kFloatMethods = {
    MethodEntry{"is_integer", float_is_integer},
};

}  // namespace

const MethodEntry* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kText:
      return find_text_method(name);
    case Kind::kDict:
      return find_entry(kDictMethods, name);
    case Kind::kList:
      return find_entry(kSequenceMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_entry(std::span(kSequenceMethods).first(2), name);
    case Kind::kCycler:
      return find_entry(kCyclerMethods, name);
    case Kind::kFloat:
      return find_entry(kFloatMethods, name);
    default:
      return nullptr;
  }
}

bool is_changing_method(Kind kind, std::string_view name) {
  constexpr std::array<std::string_view, 8> kOfList = {"append", "clear", "pop",    "reverse",
                                                       "insert", "sort",  "extend", "remove"};
  constexpr std::array<std::string_view, 5> kOfDict = {"clear", "pop", "popitem", "setdefault",
                                                       "update"};
  if (kind == Kind::kList) return std::find(kOfList.begin(), kOfList.end(), name) != kOfList.end();
  if (kind == Kind::kDict) return std::find(kOfDict.begin(), kOfDict.end(), name) != kOfDict.end();
  return false;
}

}  // namespace pagoda::model::jinja
