#include "model/template/callables.h"

#include <algorithm>

#include "model/template/ast.h"
#include "model/template/operations.h"

namespace pagoda::model::jinja {

namespace {

bool look_ahead(Loop& loop) {
  if (loop.after.is_missing()) {
    Value item;
    if (loop.pull(*loop.interpreter, loop, item)) loop.after = item;
  }
  return !loop.after.is_missing();
}

int64_t loop_length(Workspace& workspace, Loop& loop) {
  if (loop.size >= 0) return loop.size;
  const auto known =
      loop.statement->test == nullptr ? length(workspace, loop.iterable) : std::nullopt;
  if (known) {
    loop.size = *known;
    return loop.size;
  }
  // Only the end tells: what is left is gone through now and kept.
  Values rest(workspace);
  for (Value item; loop.pull(*loop.interpreter, loop, item);) rest.push_back(item);
  loop.iteration = Iteration(workspace, make_list(workspace, rest));
  loop.pull = loop.pull_plain;
  loop.size =
      static_cast<int64_t>(rest.size()) + loop.index0 + 1 + (loop.after.is_missing() ? 0 : 1);
  return loop.size;
}

Value loop_cycle(Workspace&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    fail("loop.cycle() takes one or more values");
  }
  const auto index = static_cast<size_t>(self.loop->index0);
  return arguments.positional[index % arguments.positional.size()];
}

Value loop_changed(Workspace& workspace, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) fail("loop.changed() takes no arguments by name");
  const Value values = make_tuple(workspace, arguments.positional);
  Value& last = self.loop->last_changed;
  if (!last.is_missing() && equal(workspace, last, values)) return boolean(false);
  last = values;
  return boolean(true);
}

Value loop_method(Workspace& workspace, const Value& loop, std::string_view name,
                  Value (*call)(Workspace&, const Value&, const Arguments&)) {
  return {.kind = Kind::kMethod, .method = workspace.make<Method>(Method{loop, name, call})};
}

}  // namespace

bool Loop::next(Value& item) {
  if (!after.is_missing()) {
    item = std::exchange(after, {});
  } else if (!pull(*interpreter, *this, item)) {
    return false;
  }
  ++index0;
  before = current;
  current = item;
  return true;
}

Value loop_attribute(Workspace& workspace, const Value& value, std::string_view name) {
  Loop& loop = *value.loop;
  if (name == "index0") return integer(loop.index0);
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "first") return boolean(loop.index0 == 0);
  if (name == "last") return boolean(!look_ahead(loop));
  if (name == "length") return integer(loop_length(workspace, loop));
  if (name == "revindex0") return integer(loop_length(workspace, loop) - loop.index0 - 1);
  if (name == "revindex") return integer(loop_length(workspace, loop) - loop.index0);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "previtem") {
    return loop.index0 == 0 ? undefined(workspace, "there is no previous item") : loop.before;
  }
  if (name == "nextitem") {
    return look_ahead(loop) ? loop.after : undefined(workspace, "there is no next item");
  }
  if (name == "cycle") return loop_method(workspace, value, "cycle", loop_cycle);
  if (name == "changed") return loop_method(workspace, value, "changed", loop_changed);
  return {};
}

Value macro_attribute(Workspace& workspace, const Macro& macro, std::string_view name) {
  const MacroCode& code = *macro.code;
  if (name == "name") return code.name.empty() ? none() : make_string(workspace, code.name);
  if (name == "arguments") {
    Values names(workspace);
    for (const Parameter& each : code.parameters)
      names.push_back(make_string(workspace, each.name));
    return make_tuple(workspace, std::span<const Value>(names));
  }
  if (name == "catch_kwargs") return boolean(code.kwargs_slot >= 0);
  if (name == "catch_varargs") return boolean(code.varargs_slot >= 0);
  if (name == "caller") return boolean(code.caller_slot >= 0);
  return {};
}

void append_callable(Workspace& workspace, TextBuilder& out, const Value& value) {
  if (value.is(Kind::kLoop)) {
    const int64_t size = loop_length(workspace, *value.loop);
    out.append_neutral(fmt::format("<LoopContext {}/{}>", value.loop->index0 + 1, size));
  } else if (value.macro->code->name.empty()) {
    out.append_neutral("<Macro anonymous>");
  } else {
    out.append_neutral(fmt::format("<Macro '{}'>", value.macro->code->name));
  }
}

bool flag(const Value& value, bool otherwise) {
  return value.is_missing() ? otherwise : truth(value);
}

void bind_arguments(std::string_view callee, const Arguments& arguments,
                    std::span<const std::string_view> names, size_t n_required,
                    std::span<Value> result) {
  if (arguments.positional.size() > names.size()) {
    fail("{}() takes no more than {} arguments", callee, names.size());
  }
  std::copy(arguments.positional.begin(), arguments.positional.end(), result.begin());
  for (const Argument& argument : arguments.named) {
    const auto name = std::find(names.begin(), names.end(), argument.name);
    if (name == names.end()) fail("{}() has no argument '{}'", callee, argument.name);
    Value& value = result[static_cast<size_t>(name - names.begin())];
    if (!value.is_missing())
      fail("the argument '{}' of {}() is given twice", argument.name, callee);
    value = argument.value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (result[i].is_missing()) fail("{}() needs the argument '{}'", callee, names[i]);
  }
}

}  // namespace pagoda::model::jinja
