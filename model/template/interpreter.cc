#include "model/template/interpreter.h"

#include <algorithm>

#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

Value variable_value(Workspace& workspace, const TemplateVariable& variable) {
  if (variable.checked_keys.empty() || !variable.value.is_array()) {
    return from_json(workspace, variable.value, variable.from_user);
  }
  Values items(workspace);
  for (const auto& item : variable.value) {
    items.push_back(item.is_object() ? from_checked_json(workspace, item, variable.from_user,
                                                         variable.checked_keys)
                                     : from_json(workspace, item, variable.from_user));
  }
  return make_list(workspace, items);
}

}  // namespace

Interpreter::Interpreter(const Program& program, Workspace& workspace,
                         std::span<const TemplateVariable> variables)
    : program_(program), workspace_(workspace) {
  for (const TemplateVariable& variable : variables) {
    if (!program.global_names.contains(variable.name)) continue;
    globals_[variable.name] = variable_value(workspace, variable);
  }
}

void Interpreter::run(TextBuilder& out) {
  out_ = &out;
  Activation* activation = activate(program_.function, nullptr);
  enter(program_.scope, *activation);
  run_body(program_.body, *activation);
}

Activation* Interpreter::activate(const FunctionCode& code, Activation* outer) {
  const auto n_slots = static_cast<size_t>(code.n_slots);
  auto* slots = static_cast<Value*>(workspace_.allocate(n_slots * sizeof(Value)));
  std::uninitialized_fill_n(slots, n_slots, Value{});
  return workspace_.make<Activation>(Activation{slots, outer});
}

Value& Interpreter::variable(const VariableRef& ref, Activation& activation) {
  Activation* at = &activation;
  for (int32_t hops = ref.hops; hops > 0; --hops) at = at->outer;
  return at->slots[ref.slot];
}

Value Interpreter::global(std::string_view name) const {
  if (const auto found = globals_.find(name); found != globals_.end()) return found->second;
  if (const Function* function = find_global_function(name)) {
    return {.kind = Kind::kFunction, .function = function};
  }
  return {};
}

void Interpreter::enter(const Scope& scope, Activation& activation) {
  workspace_.tick(static_cast<int64_t>(scope.loads.size()));
  for (const Load& load : scope.loads) {
    Value& slot = activation.slots[load.slot];
    switch (load.from) {
      case Load::From::kNothing:
        slot = {};
        break;
      case Load::From::kGlobal:
        workspace_.tick_bytes(load.name.size());
        slot = global(load.name);
        break;
      case Load::From::kOuter:
        slot = variable(load.outer, activation);
        break;
    }
  }
}

void Interpreter::leave(const Scope& scope, Activation& activation) {
  workspace_.tick(static_cast<int64_t>(scope.cleared.size()));
  for (const int32_t slot : scope.cleared) activation.slots[slot] = {};
}

void Interpreter::assign(const Target& target, const Value& value, Activation& activation) {
  switch (target.kind) {
    case Target::Kind::kName:
      variable(target.variable, activation) = value;
      return;
    case Target::Kind::kNamespace: {
      const Value& space = variable(target.variable, activation);
      if (!space.is(Kind::kNamespace)) {
        fail("'{}' is not a namespace, so its attribute '{}' cannot be set", target.name,
             target.attribute);
      }
      set(workspace_, *space.dict, text_value(view_text(workspace_, target.attribute)), value);
      return;
    }
    case Target::Kind::kTuple:
      break;
  }
  Iteration iteration(workspace_, value);
  Value item;
  for (const Target& each : target.items) {
    if (!iteration.next(workspace_, item)) {
      fail("a {} has too few items for {} names", type_name(value), target.items.size());
    }
    assign(each, item, activation);
  }
  if (iteration.next(workspace_, item)) {
    fail("a {} has too many items for {} names", type_name(value), target.items.size());
  }
}

Interpreter::Flow Interpreter::run_body(Body body, Activation& activation) {
  for (const Statement* statement : body) {
    if (const Flow flow = run(*statement, activation); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Statement& statement, Activation& activation) {
  workspace_.tick();
  workspace_.check_stack();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kData:
      out_->append(*static_cast<const Data&>(statement).text);
      return Flow::kNext;
    case StatementKind::kOutput:
      for (const Expression* item : static_cast<const Output&>(statement).items) {
        append_str(workspace_, *out_, evaluate(*item, activation));
      }
      return Flow::kNext;
    case StatementKind::kFor:
      return run_for(static_cast<const ForStatement&>(statement), activation);
    case StatementKind::kIf:
      return run_if(static_cast<const IfStatement&>(statement), activation);
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      assign(node.target, evaluate(*node.value, activation), activation);
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      return run_set_block(static_cast<const SetBlock&>(statement), activation);
    case StatementKind::kMacro: {
      const auto& node = static_cast<const MacroStatement&>(statement);
      variable(node.variable, activation) = {
          .kind = Kind::kMacro, .macro = workspace_.make<Macro>(Macro{node.code, &activation})};
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
    case StatementKind::kGeneration:
      run_call_block(static_cast<const CallBlock&>(statement), activation);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return run_filter_block(static_cast<const FilterBlock&>(statement), activation);
    case StatementKind::kWith:
      return run_with(static_cast<const WithStatement&>(statement), activation);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const IfStatement& node, Activation& activation) {
  for (const IfStatement::Branch& branch : node.branches) {
    if (truth(evaluate(*branch.test, activation))) return run_body(branch.body, activation);
  }
  return run_body(node.otherwise, activation);
}

Interpreter::Flow Interpreter::run_for(const ForStatement& node, Activation& activation) {
  const Value iterable = evaluate(*node.iterable, activation);
  if (!node.is_recursive) return run_loop(node, iterable, activation, activation, 0);
  append_str(workspace_, *out_, run_recursive(node, iterable, activation, 0));
  return Flow::kNext;
}

Value Interpreter::run_recursive(const ForStatement& node, const Value& iterable, Activation& outer,
                                 int64_t depth0) {
  const CallDepth depth(workspace_, call_depth_);
  Activation* activation = activate(*node.function, &outer);
  Capture capture(*this);
  run_loop(node, iterable, *activation, outer, depth0);
  return capture.finish();
}

bool Interpreter::pull(Interpreter& interpreter, Loop& loop, Value& item) {
  return loop.iteration.next(interpreter.workspace_, item);
}

bool Interpreter::pull_tested(Interpreter& interpreter, Loop& loop, Value& item) {
  const ForStatement& node = *loop.statement;
  while (loop.iteration.next(interpreter.workspace_, item)) {
    interpreter.assign(node.test_target, item, *loop.test_activation);
    if (truth(interpreter.evaluate(*node.test, *loop.test_activation))) return true;
  }
  return false;
}

Interpreter::Flow Interpreter::run_loop(const ForStatement& node, const Value& iterable,
                                        Activation& activation, Activation& outer, int64_t depth0) {
  Loop& loop = *workspace_.make<Loop>();
  loop.statement = &node;
  loop.outer = &outer;
  loop.interpreter = this;
  loop.iteration = Iteration(workspace_, iterable);
  loop.iterable = iterable;
  loop.depth0 = depth0;
  loop.pull = pull;
  loop.pull_plain = pull;
  if (node.test != nullptr) {
    loop.pull = pull_tested;
    loop.test_activation = activate(*node.test_function, &outer);
    enter(node.test_scope, *loop.test_activation);
  }
  if (node.loop_slot >= 0) activation.slots[node.loop_slot] = {};
  // As in the Python that jinja2 makes, an iteration that a break or continue cuts short does not
  // count as one for `else`.
  bool completed_one = false;
  for (Value item; loop.next(item);) {
    assign(node.target, item, activation);
    if (node.loop_slot >= 0) {
      activation.slots[node.loop_slot] = {.kind = Kind::kLoop, .loop = &loop};
    }
    enter(node.scope, activation);
    const Flow flow = run_body(node.body, activation);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completed_one = true;
  }
  leave(node.scope, activation);
  if (!node.has_otherwise || completed_one) return Flow::kNext;
  enter(node.otherwise_scope, activation);
  const Flow flow = run_body(node.otherwise, activation);
  if (flow == Flow::kNext) leave(node.otherwise_scope, activation);
  return flow;
}

Interpreter::Flow Interpreter::run_set_block(const SetBlock& node, Activation& activation) {
  enter(node.scope, activation);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = run_body(node.body, activation);
    if (flow != Flow::kNext) return flow;
    text = capture.finish();
  }
  if (node.filter != nullptr) text = evaluate_filter(*node.filter, activation, &text);
  assign(node.target, text, activation);
  leave(node.scope, activation);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_filter_block(const FilterBlock& node, Activation& activation) {
  enter(node.scope, activation);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = run_body(node.body, activation);
    if (flow != Flow::kNext) return flow;
    text = capture.finish();
  }
  append_str(workspace_, *out_, evaluate_filter(*node.filter, activation, &text));
  leave(node.scope, activation);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_with(const WithStatement& node, Activation& activation) {
  enter(node.scope, activation);
  for (size_t i = 0; i < node.targets.size(); ++i) {
    assign(node.targets[i], evaluate(*node.values[i], activation), activation);
  }
  const Flow flow = run_body(node.body, activation);
  if (flow == Flow::kNext) leave(node.scope, activation);
  return flow;
}

void Interpreter::run_call_block(const CallBlock& node, Activation& activation) {
  const Value caller{.kind = Kind::kMacro,
                     .macro = workspace_.make<Macro>(Macro{node.code, &activation})};
  const Value text = node.call == nullptr ? call_macro(*caller.macro, {})
                                          : evaluate_call(*node.call, activation, &caller);
  append_str(workspace_, *out_, text);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  switch (callee.kind) {
    case Kind::kMacro:
      return call_macro(*callee.macro, arguments);
    case Kind::kMethod:
      return callee.method->call(workspace_, callee.method->self, arguments);
    case Kind::kFunction:
      return callee.function->call(workspace_, arguments);
    case Kind::kJoiner: {
      bind<0>("joiner", arguments, {});
      const bool is_first = !std::exchange(callee.joiner->used, true);
      return is_first ? make_string(workspace_, "") : text_value(callee.joiner->separator);
    }
    case Kind::kLoop: {
      const auto [iterable] = bind<1>("loop", arguments, {"iterable"}, 1);
      const Loop& loop = *callee.loop;
      if (!loop.statement->is_recursive) {
        fail("only a loop that is marked 'recursive' can be called");
      }
      return run_recursive(*loop.statement, iterable, *loop.outer, loop.depth0 + 1);
    }
    default:
      require_defined(callee);
      fail("a {} cannot be called", type_name(callee));
  }
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const CallDepth depth(workspace_, call_depth_);
  workspace_.check_stack();
  const MacroCode& code = *macro.code;
  Activation* activation = activate(*code.function, macro.outer);
  bind_macro(macro, arguments, *activation);
  enter(code.scope, *activation);
  for (const Parameter& parameter : code.parameters) {
    Value& slot = activation->slots[parameter.slot];
    if (!slot.is_missing()) continue;
    slot = parameter.otherwise != nullptr
               ? evaluate(*parameter.otherwise, *activation)
               : undefined(workspace_, message("the parameter '{}' was not given", parameter.name));
  }
  Capture capture(*this);
  run_body(code.body, *activation);
  return capture.finish();
}

void Interpreter::bind_macro(const Macro& macro, const Arguments& arguments,
                             Activation& activation) {
  const MacroCode& code = *macro.code;
  const size_t n_parameters = code.parameters.size();
  const size_t n_taken = std::min(arguments.positional.size(), n_parameters);
  for (size_t i = 0; i < n_taken; ++i) {
    activation.slots[code.parameters[i].slot] = arguments.positional[i];
  }
  Dict* rest = workspace_.make<Dict>();
  for (const Argument& argument : arguments.named) {
    const auto unfilled = code.parameters.subspan(n_taken);
    workspace_.tick(static_cast<int64_t>(unfilled.size()));
    const auto parameter =
        std::find_if(unfilled.begin(), unfilled.end(),
                     [&](const Parameter& each) { return each.name == argument.name; });
    if (parameter != unfilled.end()) {
      activation.slots[parameter->slot] = argument.value;
    } else if (argument.name == "caller" && code.caller_slot >= 0) {
      activation.slots[code.caller_slot] = argument.value;
    } else if (code.kwargs_slot >= 0) {
      const Text* name = view_text(workspace_, argument.name, argument.is_name_from_user);
      set(workspace_, *rest, text_value(name), argument.value);
    } else {
      fail("the macro '{}' has no parameter '{}'", code.name, argument.name);
    }
  }
  if (code.caller_slot >= 0) {
    Value& caller = activation.slots[code.caller_slot];
    if (caller.is_missing() || caller.is(Kind::kNone)) {
      caller = undefined(workspace_, "the macro was not called by a call block");
    }
  }
  if (code.kwargs_slot >= 0) activation.slots[code.kwargs_slot] = dict_value(rest);
  if (code.varargs_slot >= 0) {
    activation.slots[code.varargs_slot] =
        make_tuple(workspace_, arguments.positional.subspan(n_taken));
  } else if (arguments.positional.size() > n_parameters) {
    fail("the macro '{}' takes no more than {} arguments", code.name, n_parameters);
  }
}

}  // namespace pagoda::model::jinja
