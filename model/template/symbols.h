// The names of one scope while a template is resolved.
//
// jinja2 turns a template into Python functions, and its rules of scope are what that Python does:
// every scope (the template, a loop's body, a macro, …) has variables of its own for the names that
// it stores, filled on entry from the scope around it; names that it only reads are those of the
// scope around; what no scope stores is global.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/template/ast.h"

namespace pagoda::model::jinja {

// A Python function to be: a place for variables, which a level of scope and a name pick.
class FunctionScope {
 public:
  explicit FunctionScope(const FunctionScope* outer) : outer_(outer) {}

  int32_t slot(int32_t level, std::string_view name) {
    return slots_.try_emplace({level, name}, static_cast<int32_t>(slots_.size())).first->second;
  }
  int32_t n_slots() const { return static_cast<int32_t>(slots_.size()); }
  const FunctionScope* outer() const { return outer_; }

 private:
  const FunctionScope* outer_;
  std::map<std::pair<int32_t, std::string_view>, int32_t> slots_;
};

struct Variable {
  const FunctionScope* function = nullptr;
  int32_t slot = -1;
};

class Symbols {
 public:
  Symbols(Workspace& workspace, const Symbols* parent, FunctionScope& function)
      : workspace_(workspace),
        parent_(parent),
        function_(&function),
        level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  // What a scope does with a name.
  void load(std::string_view name);
  void store(std::string_view name);
  int32_t declare_parameter(std::string_view name);

  // What the statements of a scope do, scopes inside them left out.
  void visit(Body body);
  void visit(const Statement& statement);
  void visit(const Expression* expression);
  void visit(const CallArguments& arguments);
  void store_target(const Target& target);
  void declare_target(const Target& target);

  // Null if no scope from here outwards knows the name.
  const Variable* find(std::string_view name) const;
  // What the scope does on entry. Adds the names that it reads to `globals`.
  Scope scope(bool clears, absl::flat_hash_set<std::string>& globals) const;

 private:
  enum class Source : uint8_t { kParameter, kGlobal, kOuter, kNothing };
  struct LoadFrom {
    Source source = Source::kNothing;
    std::string_view name;
    Variable outer{};
  };

  Variable define(std::string_view name, const LoadFrom& load);
  Symbols branch(Body body) const;
  void visit_if(const IfStatement& statement);
  void merge(std::span<const Symbols> branches);

  Workspace& workspace_;
  const Symbols* parent_;
  FunctionScope* function_;
  int32_t level_;
  std::map<std::string_view, Variable> variables_;
  std::map<int32_t, LoadFrom> loads_;  // by slot
  std::set<std::string_view> stored_;
};

// The way from a function to a variable of it or of one around it.
VariableRef reference(const FunctionScope& from, const Variable& variable);

// Calls visit(child) for each expression that `expression` holds, in jinja2's order.
template <typename Visit>
void for_each_argument(const CallArguments& arguments, Visit visit) {
  for (Expression* argument : arguments.positional) visit(argument);
  for (const auto& argument : arguments.named) visit(argument.value);
  visit(arguments.star);
  visit(arguments.star_star);
}
template <typename Visit>
void for_each_child(const Expression& expression, Visit visit) {
  switch (expression.kind) {
    case ExpressionKind::kConstant:
    case ExpressionKind::kName:
      return;
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
    case ExpressionKind::kConcat:
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      for (Expression* item : static_cast<const Collection&>(expression).items) visit(item);
      return;
    case ExpressionKind::kDict:
      for (const auto& pair : static_cast<const DictDisplay&>(expression).pairs) {
        visit(pair.key);
        visit(pair.value);
      }
      return;
    case ExpressionKind::kNot:
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive:
      return visit(static_cast<const Unary&>(expression).operand);
    case ExpressionKind::kArithmetic: {
      const auto& node = static_cast<const Arithmetic&>(expression);
      visit(node.first);
      for (const auto& term : node.rest) visit(term.operand);
      return;
    }
    case ExpressionKind::kCompare: {
      const auto& node = static_cast<const Compare&>(expression);
      visit(node.first);
      for (const auto& term : node.rest) visit(term.operand);
      return;
    }
    case ExpressionKind::kConditional: {
      const auto& node = static_cast<const Conditional&>(expression);
      visit(node.test);
      visit(node.yes);
      return visit(node.no);
    }
    case ExpressionKind::kAttribute:
      return visit(static_cast<const AttributeOf&>(expression).object);
    case ExpressionKind::kItem: {
      const auto& node = static_cast<const ItemOf&>(expression);
      visit(node.object);
      return visit(node.key);
    }
    case ExpressionKind::kSlice: {
      const auto& node = static_cast<const SliceOf&>(expression);
      visit(node.object);
      visit(node.start);
      visit(node.stop);
      return visit(node.step);
    }
    case ExpressionKind::kCall: {
      const auto& node = static_cast<const Call&>(expression);
      visit(node.callee);
      return for_each_argument(node.arguments, visit);
    }
    case ExpressionKind::kFilter: {
      const auto& node = static_cast<const FilterCall&>(expression);
      visit(node.operand);
      return for_each_argument(node.arguments, visit);
    }
    case ExpressionKind::kTest: {
      const auto& node = static_cast<const TestCall&>(expression);
      visit(node.operand);
      return for_each_argument(node.arguments, visit);
    }
  }
}

}  // namespace pagoda::model::jinja
