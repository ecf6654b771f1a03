// The tree of a template. It lies in the workspace of its Program and is immutable once resolved.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "model/template/chat_template.h"
#include "model/template/filters.h"
#include "model/template/operations.h"
#include "model/template/value.h"

namespace pagoda::model::jinja {

// Where a variable lies: `hops` functions outwards, then in `slot`. The template itself is a
// function; so are the bodies of macros, call blocks and recursive loops, and the `if` of a loop.
struct VariableRef {
  int32_t hops = 0;
  int32_t slot = -1;
};

enum class ExpressionKind : uint8_t {
  kConstant,
  kName,
  kList,
  kTuple,
  kDict,
  kNot,
  kNegative,
  kPositive,
  kArithmetic,
  kConcat,
  kAnd,
  kOr,
  kCompare,
  kConditional,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
};

struct Expression {
  ExpressionKind kind;
  int32_t line = 0;
  int32_t depth = 1;  // of the tree below and with it
};

using Expressions = std::span<Expression* const>;

struct Constant : Expression {
  Value value{};
};
struct Name : Expression {
  std::string_view name{};
  VariableRef variable{};
};
struct Collection : Expression {  // kList, kTuple; kConcat, kAnd, kOr over two or more
  Expressions items{};
};
struct DictDisplay : Expression {
  struct Pair {
    Expression* key;
    Expression* value;
  };
  std::span<const Pair> pairs{};
};
struct Unary : Expression {  // kNot, kNegative, kPositive
  Expression* operand = nullptr;
};
// a + b - c …, from left to right: operators of one precedence, so that long sums do not nest.
struct Arithmetic : Expression {
  struct Term {
    Operator op;
    Expression* operand;
  };
  Expression* first = nullptr;
  std::span<const Term> rest{};
};
// a < b <= c …: each neighbouring pair holds.
struct Compare : Expression {
  struct Term {
    Comparison comparison;
    Expression* operand;
  };
  Expression* first = nullptr;
  std::span<const Term> rest{};
};
struct Conditional : Expression {
  Expression* test = nullptr;
  Expression* yes = nullptr;
  Expression* no = nullptr;  // null: undefined
};
struct AttributeOf : Expression {
  Expression* object = nullptr;
  std::string_view name{};
};
struct ItemOf : Expression {
  Expression* object = nullptr;
  Expression* key = nullptr;
};
struct SliceOf : Expression {
  Expression* object = nullptr;
  Expression* start = nullptr;  // null where left out
  Expression* stop = nullptr;
  Expression* step = nullptr;
};
struct CallArguments {
  struct Named {
    std::string_view name;
    Expression* value;
  };
  Expressions positional{};
  std::span<const Named> named{};
  Expression* star = nullptr;       // *args
  Expression* star_star = nullptr;  // **kwargs
};
struct Call : Expression {
  Expression* callee = nullptr;
  CallArguments arguments{};
};
struct FilterCall : Expression {
  Expression* operand = nullptr;  // null: the text of the block around
  std::string_view name{};
  const FilterEntry* filter = nullptr;  // null: there is none of that name
  CallArguments arguments{};
};
struct TestCall : Expression {
  Expression* operand = nullptr;
  std::string_view name{};
  const TestEntry* test = nullptr;  // null: there is none of that name
  CallArguments arguments{};
};

// What a statement may assign to.
struct Target {
  enum class Kind : uint8_t { kName, kTuple, kNamespace };
  Kind kind = Kind::kName;
  std::string_view name{};
  std::string_view attribute{};  // of kNamespace
  VariableRef variable{};        // of kName; of the namespace
  std::span<Target> items{};     // of kTuple
  int32_t line = 0;
};

enum class StatementKind : uint8_t {
  kData,
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kGeneration,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind;
  int32_t line = 0;
};

using Body = std::span<Statement* const>;

// What a scope does on entry to one of its variables.
struct Load {
  enum class From : uint8_t { kNothing, kGlobal, kOuter };
  From from = From::kNothing;
  int32_t slot = 0;
  std::string_view name{};  // of kGlobal
  VariableRef outer{};      // of kOuter
};
struct Scope {
  std::span<const Load> loads{};
  std::span<const int32_t> cleared{};  // slots without a value again on the way out
};

// A function: how many slots its variables take.
struct FunctionCode {
  int32_t n_slots = 0;
};

struct Data : Statement {
  const Text* text = nullptr;
};
struct Output : Statement {
  Expressions items{};
};
struct ForStatement : Statement {
  Target target{};
  Expression* iterable = nullptr;
  Expression* test = nullptr;  // null: none
  Body body{};
  Body otherwise{};
  bool is_recursive = false;
  bool has_otherwise = false;
  int32_t loop_slot = -1;  // where `loop` lies, -1: nobody asks for it
  Scope scope{};           // of the body
  Scope otherwise_scope{};
  const FunctionCode* function = nullptr;  // of a recursive loop
  const FunctionCode* test_function = nullptr;
  Target test_target{};  // the target again, within the test's function
  Scope test_scope{};
};
struct IfStatement : Statement {
  struct Branch {
    Expression* test;
    Body body;
  };
  std::span<const Branch> branches{};
  Body otherwise{};
};
struct SetStatement : Statement {
  Target target{};
  Expression* value = nullptr;
};
struct SetBlock : Statement {
  Target target{};
  FilterCall* filter = nullptr;  // null: none
  Body body{};
  Scope scope{};
};
struct Parameter {
  std::string_view name{};
  int32_t slot = -1;
  Expression* otherwise = nullptr;  // null: undefined if not given
};
struct MacroCode {
  std::string_view name{};  // empty: the body of a call block
  std::span<Parameter> parameters{};
  Body body{};
  Scope scope{};
  const FunctionCode* function = nullptr;
  // Slots of the special variables; -1: the body does not ask for it.
  int32_t caller_slot = -1;
  int32_t kwargs_slot = -1;
  int32_t varargs_slot = -1;
};
struct MacroStatement : Statement {
  MacroCode* code = nullptr;
  VariableRef variable{};
};
struct CallBlock : Statement {  // kCallBlock, and kGeneration, where `call` is null
  MacroCode* code = nullptr;
  Call* call = nullptr;
};
struct FilterBlock : Statement {
  FilterCall* filter = nullptr;
  Body body{};
  Scope scope{};
};
struct WithStatement : Statement {
  std::span<Target> targets{};
  Expressions values{};
  Body body{};
  Scope scope{};
};

// A compiled template.
struct Program {
  explicit Program(const TemplateLimits& template_limits)
      : limits(template_limits),
        workspace({.max_bytes = template_limits.max_value_bytes,
                   .max_steps = template_limits.max_steps,
                   .max_depth = template_limits.max_depth,
                   .max_stack_bytes = template_limits.max_stack_bytes}) {}

  TemplateLimits limits;
  Workspace workspace;  // holds the tree
  Body body{};
  Scope scope{};
  FunctionCode function;
  absl::flat_hash_set<std::string> global_names;  // that are read
};

}  // namespace pagoda::model::jinja
