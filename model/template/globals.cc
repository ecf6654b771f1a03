// The global functions of every template (interpreter.h).
#include <array>

#include "model/template/callables.h"
#include "model/template/format.h"
#include "model/template/interpreter.h"
#include "model/template/operations.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

// As the sandbox has it.
constexpr int64_t kMaxRange = 100'000;

Value do_range(Workspace& workspace, const Arguments& arguments) {
  const auto [first, second, third] =
      bind_positional<3>("range", arguments, {"start", "stop", "step"}, 1);
  Range range;
  range.stop = as_index(first, "range()");
  if (!second.is_missing()) {
    range.start = range.stop;
    range.stop = as_index(second, "range()");
  }
  if (!third.is_missing()) range.step = as_index(third, "range()");
  if (range.step == 0) fail("range() cannot have the step zero");
  const __int128 distance = static_cast<__int128>(range.stop) - range.start;
  __int128 size = 0;
  if (range.step > 0 && distance > 0) size = (distance - 1) / range.step + 1;
  if (range.step < 0 && distance < 0) size = (distance + 1) / range.step + 1;
  if (size > kMaxRange) fail("range() makes more than {} numbers", kMaxRange);
  range.size = static_cast<int64_t>(size);
  return {.kind = Kind::kRange, .range = workspace.make<Range>(range)};
}

// What dict() and namespace() take: a dict or pairs, and names.
Dict* build_dict(Workspace& workspace, const Arguments& arguments, std::string_view name) {
  if (arguments.positional.size() > 1) fail("{}() takes no more than 1 argument", name);
  Dict* dict = workspace.make<Dict>();
  for (const Value& from : arguments.positional) {
    if (from.is(Kind::kDict)) {
      for (const Dict::Entry& entry : from.dict->items()) {
        set(workspace, *dict, entry.key, entry.value);
      }
      continue;
    }
    for (const Value& pair : items_of(workspace, from)) {
      const Values both = items_of(workspace, pair);
      if (both.size() != 2) fail("{}() needs pairs", name);
      set(workspace, *dict, both[0], both[1]);
    }
  }
  for (const Argument& argument : arguments.named) {
    const Text* name = view_text(workspace, argument.name, argument.is_name_from_user);
    set(workspace, *dict, text_value(name), argument.value);
  }
  return dict;
}

Value do_dict(Workspace& workspace, const Arguments& arguments) {
  return dict_value(build_dict(workspace, arguments, "dict"));
}

Value do_namespace(Workspace& workspace, const Arguments& arguments) {
  return {.kind = Kind::kNamespace, .dict = build_dict(workspace, arguments, "namespace")};
}

Value do_cycler(Workspace& workspace, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    fail("cycler() takes one or more values");
  }
  return {.kind = Kind::kCycler,
          .cycler = workspace.make<Cycler>(Cycler{workspace.copy(arguments.positional)})};
}

Value do_joiner(Workspace& workspace, const Arguments& arguments) {
  const auto [separator] = bind<1>("joiner", arguments, {"sep"});
  const Text* text =
      separator.is_missing() ? make_text(workspace, ", ") : to_text(workspace, separator);
  return {.kind = Kind::kJoiner, .joiner = workspace.make<Joiner>(Joiner{text})};
}

Value do_raise_exception(Workspace& workspace, const Arguments& arguments) {
  constexpr size_t kMaxMessageBytes = 4096;
  const auto [message] = bind<1>("raise_exception", arguments, {"message"}, 1);
  std::string_view words = to_text(workspace, message)->bytes;
  if (words.size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while (end > 0 && !is_character_begin(words[end])) --end;
    words = words.substr(0, end);
  }
  throw TemplateError{.message = std::string(words), .is_refusal = true};
}

Value do_strftime_now(Workspace& workspace, const Arguments& arguments) {
  const auto [format] = bind<1>("strftime_now", arguments, {"format"}, 1);
  if (!format.is_text()) fail("strftime_now() takes a text, not a {}", type_name(format));
  return text_value(format_time(workspace, *format.text, workspace.now_unix_s));
}

Value do_lipsum(Workspace&, const Arguments&) { fail("lipsum() is not supported in templates"); }

constexpr std::array kFunctions = {
    Function{"range", do_range},
    Function{"dict", do_dict},
    Function{"namespace", do_namespace},
    Function{"cycler", do_cycler},
    Function{"joiner", do_joiner},
    Function{"raise_exception", do_raise_exception},
    Function{"strftime_now", do_strftime_now},
    Function{"lipsum", do_lipsum},
};

}  // namespace

const Function* find_global_function(std::string_view name) { return find_entry(kFunctions, name); }

}  // namespace pagoda::model::jinja
