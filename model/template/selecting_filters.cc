// Filters that apply a filter or test to each item: map, select and their like, unique (filters.h).
//
// In Python they are lazy. Here they run at once, but an error waits until somebody asks for the
// item that it would be raised at.
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

// Runs `visit(item, kept)` for each item; what it throws becomes the iterator's error.
template <typename Visit>
Value collect(Workspace& workspace, const Value& value, Visit make_visit) {
  Values kept(workspace);
  try {
    if (!truth(value)) return make_iterator(workspace, kept);
    auto visit = make_visit();
    Iteration iteration(workspace, value);
    for (Value item; iteration.next(workspace, item);) visit(item, kept);
  } catch (const TemplateError& error) {
    if (error.is_limit) throw;
    return make_iterator(workspace, kept, "generator", error.message);
  }
  return make_iterator(workspace, kept);
}

std::string_view callable_name(Workspace& workspace, const Value& name, std::string_view what) {
  if (!name.is_text()) fail("there is no {} {}", what, shown(workspace, name));
  return name.text->bytes;
}

Value do_map(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return collect(workspace, value, [&] {
    const auto is_attribute = [](const Argument& a) { return a.name == "attribute"; };
    const bool by_attribute =
        arguments.positional.empty() &&
        std::any_of(arguments.named.begin(), arguments.named.end(), is_attribute);
    Path path(workspace, none());
    const FilterEntry* filter = nullptr;
    Arguments rest = arguments;
    if (by_attribute) {
      const auto [attribute, otherwise] = bind<2>("map", arguments, {"attribute", "default"});
      path = Path(workspace, attribute, otherwise);
    } else {
      if (arguments.positional.empty()) fail("map() needs the name of a filter");
      const std::string_view name = callable_name(workspace, arguments.positional[0], "filter");
      filter = find_filter(name);
      if (filter == nullptr) fail("there is no filter '{}'", name);
      rest.positional = arguments.positional.subspan(1);
    }
    return [&workspace, path, filter, rest](const Value& item, Values& kept) {
      kept.push_back(filter == nullptr ? path.of(workspace, item)
                                       : filter->call(workspace, item, rest));
    };
  });
}

Value select(Workspace& workspace, const Value& value, const Arguments& arguments,
             bool by_attribute, bool wanted) {
  return collect(workspace, value, [&] {
    Path path(workspace, none());
    Arguments rest = arguments;
    if (by_attribute) {
      if (arguments.positional.empty()) fail("the name of an attribute is missing");
      path = Path(workspace, arguments.positional[0]);
      rest.positional = arguments.positional.subspan(1);
    }
    const TestEntry* test = nullptr;
    if (!rest.positional.empty()) {
      const std::string_view name = callable_name(workspace, rest.positional[0], "test");
      test = find_test(name);
      if (test == nullptr) fail("there is no test '{}'", name);
      rest.positional = rest.positional.subspan(1);
    }
    return [&workspace, path, test, rest, wanted](const Value& item, Values& kept) {
      const Value tested = path.of(workspace, item);
      const bool passes = test == nullptr ? truth(tested) : test->call(workspace, tested, rest);
      if (passes == wanted) kept.push_back(item);
    };
  });
}

Value do_select(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return select(workspace, value, arguments, false, true);
}
Value do_reject(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return select(workspace, value, arguments, false, false);
}
Value do_selectattr(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return select(workspace, value, arguments, true, true);
}
Value do_rejectattr(Workspace& workspace, const Value& value, const Arguments& arguments) {
  return select(workspace, value, arguments, true, false);
}

Value do_unique(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [case_sensitive, path] = bind<2>("unique", arguments, {"case_sensitive", "attribute"});
  const SortKey key(workspace, path, flag(case_sensitive));
  Values kept(workspace);
  Dict seen;
  try {
    Iteration iteration(workspace, value);
    for (Value item; iteration.next(workspace, item);) {
      const Value item_key = key.of(workspace, item);
      if (find(workspace, seen, item_key) != nullptr) continue;
      set(workspace, seen, item_key, none());
      kept.push_back(item);
    }
  } catch (const TemplateError& error) {
    if (error.is_limit) throw;
    return make_iterator(workspace, kept, "generator", error.message);
  }
  return make_iterator(workspace, kept);
}

constexpr std::array kFilters = {
    FilterEntry{"map", do_map},
    FilterEntry{"reject", do_reject},
    FilterEntry{"rejectattr", do_rejectattr},
    FilterEntry{"select", do_select},
    FilterEntry{"selectattr", do_selectattr},
    FilterEntry{"unique", do_unique},
};

}  // namespace

const FilterEntry* find_selecting_filter(std::string_view name) {
  return find_entry(kFilters, name);
}

const FilterEntry* find_filter(std::string_view name) {
  if (const FilterEntry* entry = find_text_filter(name)) return entry;
  if (const FilterEntry* entry = find_sequence_filter(name)) return entry;
  return find_selecting_filter(name);
}

}  // namespace pagoda::model::jinja
