// Filters of lists and dicts (filters.h).
#include <algorithm>
#include <array>

#include "model/template/callables.h"
#include "model/template/filters.h"
#include "model/template/operations.h"
#include "model/template/paths.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

Value do_length(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("length", arguments, {});
  if (value.is(Kind::kLoop)) return attribute(workspace, value, "length");
  const auto size = length(workspace, value);
  if (!size) fail("a {} has no length", type_name(value));
  return integer(*size);
}

Value do_default(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [otherwise, for_false] = bind<2>("default", arguments, {"default_value", "boolean"});
  const bool use_default = value.is(Kind::kUndefined) || (flag(for_false) && !truth(value));
  if (!use_default) return value;
  return otherwise.is_missing() ? make_string(workspace, "") : otherwise;
}

Value do_join(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [separator, path] = bind<2>("join", arguments, {"d", "attribute"});
  const Text empty{.is_ascii = true};
  const Text& between = separator.is_missing() ? empty : *to_text(workspace, separator);
  const Path attribute_path(workspace, is_given(path) ? path : none());
  TextBuilder out(workspace);
  Iteration iteration(workspace, value);
  bool first = true;
  for (Value item; iteration.next(workspace, item);) {
    if (!std::exchange(first, false)) out.append(between);
    append_str(workspace, out, attribute_path.of(workspace, item));
  }
  return text_value(out.finish(workspace));
}

Value do_first(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("first", arguments, {});
  Iteration iteration(workspace, value);
  Value item;
  if (iteration.next(workspace, item)) return item;
  return undefined(workspace, "there is no first item, the sequence is empty");
}

Value do_last(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("last", arguments, {});
  const bool is_dict = value.is(Kind::kDict) || value.is(Kind::kDictView);
  if (value.is_text() || value.is(Kind::kRange)) {
    const Value last = item(workspace, value, integer(-1));
    if (!last.is(Kind::kUndefined)) return last;
  } else if (value.is(Kind::kList) || value.is(Kind::kTuple)) {
    if (!value.sequence->items.empty()) return value.sequence->items.back();
  } else if (is_dict) {
    const Values items = items_of(workspace, value);
    if (!items.empty()) return items.back();
  } else if (!value.is(Kind::kUndefined)) {
    fail("a {} cannot be gone through backwards", type_name(value));
  }
  return undefined(workspace, "there is no last item, the sequence is empty");
}

Value do_list(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("list", arguments, {});
  return make_list(workspace, items_of(workspace, value));
}

Value do_reverse(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("reverse", arguments, {});
  if (value.is_text()) return slice(workspace, value, none(), none(), integer(-1));
  Values items = items_of(workspace, value);
  std::reverse(items.begin(), items.end());
  if (value.is(Kind::kIterator)) return make_list(workspace, items);
  return make_iterator(workspace, items, "reversed");
}

Value do_sum(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [path, start] = bind<2>("sum", arguments, {"attribute", "start"});
  const Path attribute_path(workspace, is_given(path) ? path : none());
  Value sum = start.is_missing() ? integer(0) : start;
  if (sum.is_text()) fail("texts cannot be summed up; use join");
  Iteration iteration(workspace, value);
  for (Value item; iteration.next(workspace, item);) {
    sum = calculate(workspace, Operator::kAdd, sum, attribute_path.of(workspace, item));
  }
  return sum;
}

// The item with the least or greatest key; the first one of equals.
Value extreme(Workspace& workspace, const Value& value, const Arguments& arguments,
              std::string_view filter, bool wants_greatest) {
  const auto [case_sensitive, path] = bind<2>(filter, arguments, {"case_sensitive", "attribute"});
  const SortKey key(workspace, path, flag(case_sensitive));
  Iteration iteration(workspace, value);
  Value best;
  Value best_key;
  for (Value item; iteration.next(workspace, item);) {
    const Value item_key = key.of(workspace, item);
    const bool is_better =
        best.is_missing() || (wants_greatest ? less(workspace, best_key, item_key)
                                             : less(workspace, item_key, best_key));
    if (!is_better) continue;
    best = item;
    best_key = item_key;
  }
  if (!best.is_missing()) return best;
  return undefined(workspace, "there is no item, the sequence is empty");
}

Value do_min(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return extreme(workspace, value, arguments, "min", false);
}
Value do_max(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return extreme(workspace, value, arguments, "max", true);
}

struct Keyed {
  Value key;
  Value item;
};

Temporary<Keyed> sorted(Workspace& workspace, Temporary<Keyed> items, bool descending) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? less(workspace, b.key, a.key) : less(workspace, a.key, b.key);
  });
  return items;
}

Temporary<Keyed> keyed_items(Workspace& workspace, const Value& value, const SortKey& key) {
  Temporary<Keyed> items(workspace);
  for (const Value& item : items_of(workspace, value)) {
    items.push_back({key.of(workspace, item), item});
  }
  return items;
}

Value do_sort(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [descending, case_sensitive, path] =
      bind<3>("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const SortKey key(workspace, path, flag(case_sensitive), true);
  Values items(workspace);
  for (const Keyed& each :
       sorted(workspace, keyed_items(workspace, value, key), flag(descending))) {
    items.push_back(each.item);
  }
  return make_list(workspace, items);
}

Value do_dictsort(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [case_sensitive, by, descending] =
      bind<3>("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view part = by.is_missing() ? "key" : to_text(workspace, by)->bytes;
  if (part != "key" && part != "value") fail("dictsort() sorts by key or by value");
  require_defined(value);
  if (!value.is(Kind::kDict))
    fail("the filter dictsort works on a dict, not a {}", type_name(value));
  const SortKey key(workspace, {}, flag(case_sensitive));
  Temporary<Keyed> pairs(workspace);
  for (const Dict::Entry& entry : value.dict->items()) {
    const Value pair[] = {entry.key, entry.value};
    pairs.push_back(
        {key.of(workspace, part == "key" ? entry.key : entry.value), make_tuple(workspace, pair)});
  }
  Values items(workspace);
  for (const Keyed& each : sorted(workspace, std::move(pairs), flag(descending))) {
    items.push_back(each.item);
  }
  return make_list(workspace, items);
}

Value do_groupby(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [path, otherwise, case_sensitive] =
      bind<3>("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const SortKey key(workspace, path, flag(case_sensitive), false, otherwise);
  const Path plain(workspace, path, otherwise);
  const Temporary<Keyed> items = sorted(workspace, keyed_items(workspace, value, key), false);
  Values groups(workspace);
  for (size_t begin = 0; begin < items.size();) {
    Values members(workspace);
    size_t end = begin;
    for (; end < items.size() && equal(workspace, items[begin].key, items[end].key); ++end) {
      members.push_back(items[end].item);
    }
    const Value pair[] = {plain.of(workspace, members[0]), make_list(workspace, members)};
    groups.push_back({.kind = Kind::kTuple,
                      .sequence = workspace.make<Sequence>(
                          Sequence{workspace.copy(std::span<const Value>(pair)), true})});
    begin = end;
  }
  return make_list(workspace, groups);
}

Value do_items(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("items", arguments, {});
  if (value.is(Kind::kUndefined)) return make_iterator(workspace, {});
  if (!value.is(Kind::kDict)) {
    return make_iterator(workspace, {}, "generator", "only a dict has items");
  }
  const DictView view{value.dict, DictView::Part::kItems};
  return make_iterator(workspace, items_of(workspace, {.kind = Kind::kDictView, .view = &view}));
}

Value do_batch(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [size_value, fill] = bind<2>("batch", arguments, {"linecount", "fill_with"}, 1);
  Values batches(workspace);
  Values batch(workspace);
  for (const Value& item : items_of(workspace, value)) {
    if (equal(workspace, integer(static_cast<int64_t>(batch.size())), size_value)) {
      batches.push_back(make_list(workspace, batch));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (is_given(fill)) {
      const int64_t size = as_index(size_value, "linecount");
      const auto wanted = static_cast<size_t>(std::max<int64_t>(size, 0));
      workspace.check_room(std::min(wanted, SIZE_MAX / sizeof(Value)) * sizeof(Value));
      if (batch.size() < wanted) batch.resize(wanted, fill);
    }
    batches.push_back(make_list(workspace, batch));
  }
  return make_iterator(workspace, batches);
}

Value do_slice(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [count, fill] = bind<2>("slice", arguments, {"slices", "fill_with"}, 1);
  const Values items = items_of(workspace, value);
  const int64_t n_slices = as_index(count, "slices");
  if (n_slices == 0) return make_iterator(workspace, {}, "generator", "division by zero");
  if (n_slices < 0) return make_iterator(workspace, {});
  const auto n_items = static_cast<int64_t>(items.size());
  const int64_t per_slice = n_items / n_slices;
  const int64_t n_larger = n_items % n_slices;
  Values slices(workspace);
  int64_t begin = 0;
  for (int64_t i = 0; i < n_slices; ++i) {
    workspace.tick();
    const int64_t end = begin + per_slice + (i < n_larger ? 1 : 0);
    Values part(items.begin() + begin, items.begin() + end, workspace);
    if (is_given(fill) && i >= n_larger) part.push_back(fill);
    slices.push_back(make_list(workspace, part));
    begin = end;
  }
  return make_iterator(workspace, slices);
}

Value do_attr(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [name] = bind<1>("attr", arguments, {"name"}, 1);
  if (!name.is_text()) fail("attr() needs the name of an attribute");
  return attribute_only(workspace, value, name.text->bytes);
}

constexpr std::array kFilters = {
    FilterEntry{"attr", do_attr},       FilterEntry{"batch", do_batch},
    FilterEntry{"count", do_length},    FilterEntry{"d", do_default},
    FilterEntry{"default", do_default}, FilterEntry{"dictsort", do_dictsort},
    FilterEntry{"first", do_first},     FilterEntry{"groupby", do_groupby},
    FilterEntry{"items", do_items},     FilterEntry{"join", do_join},
    FilterEntry{"last", do_last},       FilterEntry{"length", do_length},
    FilterEntry{"list", do_list},       FilterEntry{"max", do_max},
    FilterEntry{"min", do_min},         FilterEntry{"reverse", do_reverse},
    FilterEntry{"slice", do_slice},     FilterEntry{"sort", do_sort},
    FilterEntry{"sum", do_sum},
};

}  // namespace

const FilterEntry* find_sequence_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

}  // namespace pagoda::model::jinja
