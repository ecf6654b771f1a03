// Runs a compiled template once. One thread; made for one render and thrown away.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/template/ast.h"
#include "model/template/callables.h"

namespace pagoda::model::jinja {

// The variables of one call of a function.
struct Activation {
  Value* slots = nullptr;
  Activation* outer = nullptr;  // of the function around it
};

class Interpreter {
 public:
  // Borrows all three.
  Interpreter(const Program& program, Workspace& workspace,
              std::span<const TemplateVariable> variables);

  // Writes the rendered template to `out`; throws TemplateError.
  void run(TextBuilder& out);
  // The line being run.
  int32_t line() const { return line_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Sends the output of a block elsewhere while it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& interpreter)
        : interpreter_(interpreter), text_(interpreter.workspace_), outer_(interpreter.out_) {
      interpreter_.out_ = &text_;
    }
    ~Capture() { interpreter_.out_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Value finish() { return text_value(text_.finish(interpreter_.workspace_)); }

   private:
    Interpreter& interpreter_;
    TextBuilder text_;
    TextBuilder* outer_;
  };

  // Arguments of a call while it runs.
  struct Evaluated {
    explicit Evaluated(Workspace& workspace) : positional(workspace), named(workspace) {}
    Values positional;
    Temporary<Argument> named;
    Arguments view() const { return {positional, named}; }
  };

  // Statements.
  Flow run_body(Body body, Activation& activation);
  Flow run(const Statement& statement, Activation& activation);
  Flow run_if(const IfStatement& node, Activation& activation);
  Flow run_for(const ForStatement& node, Activation& activation);
  Flow run_loop(const ForStatement& node, const Value& iterable, Activation& activation,
                Activation& outer, int64_t depth0);
  Flow run_set_block(const SetBlock& node, Activation& activation);
  Flow run_filter_block(const FilterBlock& node, Activation& activation);
  Flow run_with(const WithStatement& node, Activation& activation);
  void run_call_block(const CallBlock& node, Activation& activation);
  Value run_recursive(const ForStatement& node, const Value& iterable, Activation& outer,
                      int64_t depth0);

  // Scopes and variables.
  Activation* activate(const FunctionCode& code, Activation* outer);
  static Value& variable(const VariableRef& ref, Activation& activation);
  void enter(const Scope& scope, Activation& activation);
  void leave(const Scope& scope, Activation& activation);
  void assign(const Target& target, const Value& value, Activation& activation);
  Value global(std::string_view name) const;
  static bool pull(Interpreter&, Loop& loop, Value& item);
  static bool pull_tested(Interpreter& interpreter, Loop& loop, Value& item);

  // Expressions.
  Value evaluate(const Expression& expression, Activation& activation);
  Value evaluate_name(const Name& node, Activation& activation);
  Value evaluate_items(const Collection& node, Activation& activation);
  Value evaluate_dict(const DictDisplay& node, Activation& activation);
  Value evaluate_arithmetic(const Arithmetic& node, Activation& activation);
  Value evaluate_concat(const Collection& node, Activation& activation);
  Value evaluate_compare(const Compare& node, Activation& activation);
  Value evaluate_slice(const SliceOf& node, Activation& activation);
  Value evaluate_call(const Call& node, Activation& activation, const Value* caller);
  Value evaluate_filter(const FilterCall& node, Activation& activation, const Value* block);
  Value evaluate_test(const TestCall& node, Activation& activation);
  Evaluated evaluate_arguments(const CallArguments& arguments, Activation& activation);
  void add_star_arguments(const CallArguments& node, Activation& activation, Evaluated& arguments);
  // Adds operands to a text as long as they are texts; the index of the first that is none.
  size_t add_texts(std::span<const Arithmetic::Term> terms, size_t first, Activation& activation,
                   TextBuilder& out, Value& other);

  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  void bind_macro(const Macro& macro, const Arguments& arguments, Activation& activation);

  const Program& program_;
  Workspace& workspace_;
  absl::flat_hash_map<std::string_view, Value> globals_;
  TextBuilder* out_ = nullptr;
  int32_t line_ = 0;
  int32_t call_depth_ = 0;
};

// A global function of every template, such as range; null if there is none of that name.
const Function* find_global_function(std::string_view name);

}  // namespace pagoda::model::jinja
