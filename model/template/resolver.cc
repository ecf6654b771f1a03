#include "model/template/resolver.h"

#include "model/template/symbols.h"

namespace pagoda::model::jinja {

namespace {

// Which of some special names (caller, loop, …) a part of the tree reads before it stores them.
class SpecialNames {
 public:
  SpecialNames(Workspace& workspace, std::set<std::string_view> names)
      : workspace_(workspace), names_(std::move(names)) {}

  void visit(Body body) {
    for (const Statement* statement : body) visit(*statement);
  }
  bool reads(std::string_view name) const { return read_.contains(name); }

 private:
  void visit(const Expression* expression) {
    if (expression == nullptr) return;
    workspace_.tick();
    workspace_.check_stack();
    if (expression->kind == ExpressionKind::kName) {
      const std::string_view name = static_cast<const Name*>(expression)->name;
      if (names_.contains(name)) read_.insert(name);
    }
    for_each_child(*expression, [this](const Expression* child) { visit(child); });
  }
  void visit(const Target& target) {
    if (target.kind == Target::Kind::kName) names_.erase(target.name);
    for (const Target& item : target.items) visit(item);
  }
  void visit(const MacroCode& code) {
    for (const Parameter& parameter : code.parameters) names_.erase(parameter.name);
    for (const Parameter& parameter : code.parameters) visit(parameter.otherwise);
    visit(code.body);
  }
  void visit(const Statement& statement) {
    workspace_.tick();
    workspace_.check_stack();
    switch (statement.kind) {
      case StatementKind::kData:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
      case StatementKind::kOutput:
        for (const Expression* item : static_cast<const Output&>(statement).items) visit(item);
        return;
      case StatementKind::kFor: {
        const auto& node = static_cast<const ForStatement&>(statement);
        visit(node.target);
        visit(node.iterable);
        visit(node.body);
        visit(node.otherwise);
        return visit(node.test);
      }
      case StatementKind::kIf: {
        const auto& node = static_cast<const IfStatement&>(statement);
        for (const auto& branch : node.branches) {
          visit(branch.test);
          visit(branch.body);
        }
        return visit(node.otherwise);
      }
      case StatementKind::kSet: {
        const auto& node = static_cast<const SetStatement&>(statement);
        visit(node.target);
        return visit(node.value);
      }
      case StatementKind::kSetBlock: {
        const auto& node = static_cast<const SetBlock&>(statement);
        visit(node.target);
        visit(node.filter);
        return visit(node.body);
      }
      case StatementKind::kMacro:
        return visit(*static_cast<const MacroStatement&>(statement).code);
      case StatementKind::kCallBlock:
      case StatementKind::kGeneration: {
        const auto& node = static_cast<const CallBlock&>(statement);
        visit(node.call);
        return visit(*node.code);
      }
      case StatementKind::kFilterBlock: {
        const auto& node = static_cast<const FilterBlock&>(statement);
        visit(node.body);
        return visit(node.filter);
      }
      case StatementKind::kWith: {
        const auto& node = static_cast<const WithStatement&>(statement);
        for (const Target& target : node.targets) visit(target);
        for (const Expression* value : node.values) visit(value);
        return visit(node.body);
      }
    }
  }

  Workspace& workspace_;
  std::set<std::string_view> names_;
  std::set<std::string_view> read_;
};

// Where a statement stands.
struct Frame {
  const Symbols& symbols;
  FunctionScope& function;
  bool may_not_run = false;  // in an if: an unknown filter is an error only if it is reached
  bool in_loop = false;      // of the same function
};

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program), workspace_(program.workspace) {}

  void run() {
    FunctionScope function(nullptr);
    Symbols symbols(workspace_, nullptr, function);
    symbols.visit(program_.body);
    resolve(program_.body, Frame{symbols, function});
    program_.scope = symbols.scope(false, program_.global_names);
    program_.function.n_slots = function.n_slots();
  }

 private:
  VariableRef find(const Frame& frame, std::string_view name, int32_t line) const {
    const Variable* variable = frame.symbols.find(name);
    // The filter of a set block stands in no scope that would look for its names.
    if (variable == nullptr) fail_at(line, "the name '{}' is not known here", name);
    return reference(frame.function, *variable);
  }

  void resolve(Expression* expression, const Frame& frame) {
    if (expression == nullptr) return;
    workspace_.tick();
    workspace_.check_stack();
    if (expression->kind == ExpressionKind::kName) {
      auto* name = static_cast<Name*>(expression);
      name->variable = find(frame, name->name, name->line);
    } else if (expression->kind == ExpressionKind::kConditional) {
      return resolve_conditional(*expression, frame);
    } else if (expression->kind == ExpressionKind::kFilter) {
      const auto* node = static_cast<const FilterCall*>(expression);
      if (node->filter == nullptr && !frame.may_not_run) {
        fail_at(node->line, "there is no filter '{}'", node->name);
      }
    } else if (expression->kind == ExpressionKind::kTest) {
      const auto* node = static_cast<const TestCall*>(expression);
      if (node->test == nullptr && !frame.may_not_run) {
        fail_at(node->line, "there is no test '{}'", node->name);
      }
    }
    for_each_child(*expression, [&](Expression* child) { resolve(child, frame); });
  }
  void resolve_conditional(const Expression& expression, const Frame& frame) {
    const Frame inner{frame.symbols, frame.function, true, frame.in_loop};
    for_each_child(expression, [&](Expression* child) { resolve(child, inner); });
  }

  void resolve(Target& target, const Frame& frame) {
    if (target.kind != Target::Kind::kTuple) {
      target.variable = find(frame, target.name, target.line);
    }
    for (Target& item : target.items) resolve(item, frame);
  }

  void resolve(Body body, const Frame& frame) {
    for (Statement* statement : body) resolve(*statement, frame);
  }

  void resolve(Statement& statement, const Frame& frame) {
    workspace_.tick();
    workspace_.check_stack();
    switch (statement.kind) {
      case StatementKind::kData:
        return;
      case StatementKind::kOutput:
        for (Expression* item : static_cast<Output&>(statement).items) resolve(item, frame);
        return;
      case StatementKind::kFor:
        return resolve_for(static_cast<ForStatement&>(statement), frame);
      case StatementKind::kIf: {
        auto& node = static_cast<IfStatement&>(statement);
        const Frame inner{frame.symbols, frame.function, true, frame.in_loop};
        for (const auto& branch : node.branches) {
          resolve(branch.test, inner);
          resolve(branch.body, inner);
        }
        return resolve(node.otherwise, inner);
      }
      case StatementKind::kSet: {
        auto& node = static_cast<SetStatement&>(statement);
        resolve(node.value, frame);
        return resolve(node.target, frame);
      }
      case StatementKind::kSetBlock:
        return resolve_set_block(static_cast<SetBlock&>(statement), frame);
      case StatementKind::kMacro: {
        auto& node = static_cast<MacroStatement&>(statement);
        resolve_macro(*node.code, node.line, frame);
        node.variable = find(frame, node.code->name, node.line);
        return;
      }
      case StatementKind::kCallBlock:
      case StatementKind::kGeneration: {
        auto& node = static_cast<CallBlock&>(statement);
        resolve_macro(*node.code, node.line, frame);
        return resolve(node.call, frame);
      }
      case StatementKind::kFilterBlock:
        return resolve_filter_block(static_cast<FilterBlock&>(statement), frame);
      case StatementKind::kWith:
        return resolve_with(static_cast<WithStatement&>(statement), frame);
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        if (!frame.in_loop) fail_at(statement.line, "'break' and 'continue' belong in a loop");
        return;
    }
  }

  void resolve_for(ForStatement& node, const Frame& frame) {
    FunctionScope own_function(&frame.function);
    FunctionScope& function = node.is_recursive ? own_function : frame.function;
    Symbols body(workspace_, &frame.symbols, function);
    Symbols otherwise(workspace_, &frame.symbols, function);

    SpecialNames special(workspace_, {"loop"});
    special.visit(node.body);
    if (node.is_recursive || special.reads("loop")) {
      node.loop_slot = body.declare_parameter("loop");
    }
    body.declare_target(node.target);
    body.visit(node.body);
    if (node.has_otherwise) otherwise.visit(node.otherwise);
    if (node.test != nullptr) resolve_loop_test(node, frame);
    refuse_loop_target(node);

    const Frame body_frame{body, function, false, true};
    resolve(node.target, body_frame);
    resolve(node.iterable, frame);
    resolve(node.body, body_frame);
    const bool outer_loop = frame.in_loop && !node.is_recursive;
    resolve(node.otherwise, Frame{otherwise, function, false, outer_loop});
    const bool clears_body = !node.is_recursive || node.has_otherwise;
    node.scope = body.scope(clears_body, program_.global_names);
    node.otherwise_scope = otherwise.scope(true, program_.global_names);
    if (node.is_recursive) node.function = make_code(own_function);
  }

  void resolve_loop_test(ForStatement& node, const Frame& frame) {
    FunctionScope function(&frame.function);
    Symbols symbols(workspace_, &frame.symbols, function);
    symbols.declare_target(node.target);
    symbols.visit(node.test);
    const Frame test_frame{symbols, function};
    node.test_target = copy_target(node.target);
    resolve(node.test_target, test_frame);
    resolve(node.test, test_frame);
    node.test_scope = symbols.scope(false, program_.global_names);
    node.test_function = make_code(function);
  }

  Target copy_target(const Target& target) {
    Target copy = target;
    if (target.items.empty()) return copy;
    std::vector<Target> items;
    for (const Target& item : target.items) items.push_back(copy_target(item));
    copy.items = workspace_.copy(items);
    return copy;
  }

  static void refuse_loop(const Target& target) {
    if (target.kind == Target::Kind::kName && target.name == "loop") {
      fail_at(target.line, "the variable 'loop' of a loop cannot be assigned to");
    }
    for (const Target& item : target.items) refuse_loop(item);
  }
  void refuse_loop_target(const ForStatement& node) const {
    refuse_loop(node.target);
    refuse_loop_target(node.body);
    refuse_loop_target(node.otherwise);
  }
  void refuse_loop_target(Body body) const {
    for (const Statement* statement : body) {
      workspace_.tick();
      workspace_.check_stack();
      switch (statement->kind) {
        case StatementKind::kSet:
          refuse_loop(static_cast<const SetStatement*>(statement)->target);
          break;
        case StatementKind::kSetBlock:
          refuse_loop(static_cast<const SetBlock*>(statement)->target);
          refuse_loop_target(static_cast<const SetBlock*>(statement)->body);
          break;
        case StatementKind::kFor:
          refuse_loop_target(*static_cast<const ForStatement*>(statement));
          break;
        case StatementKind::kIf:
          for (const auto& branch : static_cast<const IfStatement*>(statement)->branches) {
            refuse_loop_target(branch.body);
          }
          refuse_loop_target(static_cast<const IfStatement*>(statement)->otherwise);
          break;
        case StatementKind::kMacro:
          refuse_loop_target(static_cast<const MacroStatement*>(statement)->code->body);
          break;
        case StatementKind::kCallBlock:
        case StatementKind::kGeneration:
          refuse_loop_target(static_cast<const CallBlock*>(statement)->code->body);
          break;
        case StatementKind::kFilterBlock:
          refuse_loop_target(static_cast<const FilterBlock*>(statement)->body);
          break;
        case StatementKind::kWith:
          refuse_loop_target(static_cast<const WithStatement*>(statement)->body);
          break;
        case StatementKind::kData:
        case StatementKind::kOutput:
        case StatementKind::kBreak:
        case StatementKind::kContinue:
          break;
      }
    }
  }

  void resolve_macro(MacroCode& code, int32_t line, const Frame& frame) {
    FunctionScope function(&frame.function);
    Symbols symbols(workspace_, &frame.symbols, function);
    visit_macro(symbols, code);
    SpecialNames special(workspace_, {"caller", "kwargs", "varargs"});
    special.visit(code.body);
    const auto parameter = [&](std::string_view name) -> const Parameter* {
      for (const Parameter& each : code.parameters) {
        if (each.name == name) return &each;
      }
      return nullptr;
    };
    if (special.reads("caller")) {
      const Parameter* caller = parameter("caller");
      if (caller == nullptr) {
        code.caller_slot = symbols.declare_parameter("caller");
      } else if (caller->otherwise == nullptr) {
        fail_at(line, "the parameter 'caller' must have a default or be left out");
      }
    }
    if (special.reads("kwargs") && parameter("kwargs") == nullptr) {
      code.kwargs_slot = symbols.declare_parameter("kwargs");
    }
    if (special.reads("varargs") && parameter("varargs") == nullptr) {
      code.varargs_slot = symbols.declare_parameter("varargs");
    }
    visit_macro(symbols, code);

    const Frame inner{symbols, function};
    for (Parameter& each : code.parameters) {
      each.slot = symbols.find(each.name)->slot;
      resolve(each.otherwise, inner);
    }
    resolve(code.body, inner);
    code.scope = symbols.scope(false, program_.global_names);
    code.function = make_code(function);
  }

  static void visit_macro(Symbols& symbols, const MacroCode& code) {
    for (const Parameter& parameter : code.parameters) symbols.declare_parameter(parameter.name);
    for (const Parameter& parameter : code.parameters) symbols.visit(parameter.otherwise);
    symbols.visit(code.body);
  }

  void resolve_set_block(SetBlock& node, const Frame& frame) {
    Symbols symbols(workspace_, &frame.symbols, frame.function);
    symbols.visit(node.body);
    const Frame inner{symbols, frame.function, false, frame.in_loop};
    resolve(node.body, inner);
    resolve(node.target, frame);
    resolve(node.filter, inner);
    node.scope = symbols.scope(true, program_.global_names);
  }

  void resolve_filter_block(FilterBlock& node, const Frame& frame) {
    Symbols symbols(workspace_, &frame.symbols, frame.function);
    symbols.visit(node.body);
    symbols.visit(node.filter);
    const Frame inner{symbols, frame.function, false, frame.in_loop};
    resolve(node.body, inner);
    resolve(node.filter, inner);
    node.scope = symbols.scope(true, program_.global_names);
  }

  void resolve_with(WithStatement& node, const Frame& frame) {
    Symbols symbols(workspace_, &frame.symbols, frame.function);
    for (const Target& target : node.targets) symbols.declare_target(target);
    symbols.visit(node.body);
    const Frame inner{symbols, frame.function, false, frame.in_loop};
    for (Target& target : node.targets) resolve(target, inner);
    for (Expression* value : node.values) resolve(value, frame);
    resolve(node.body, inner);
    node.scope = symbols.scope(true, program_.global_names);
  }

  const FunctionCode* make_code(const FunctionScope& function) {
    return workspace_.make<FunctionCode>(FunctionCode{function.n_slots()});
  }

  Program& program_;
  Workspace& workspace_;
};

}  // namespace

void resolve(Program& program) { Resolver(program).run(); }

}  // namespace pagoda::model::jinja
