// Expressions (interpreter.h).
#include "model/template/interpreter.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

Value Interpreter::evaluate(const Expression& expression, Activation& activation) {
  workspace_.tick();
  workspace_.check_stack();
  line_ = expression.line;
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return static_cast<const Constant&>(expression).value;
    case ExpressionKind::kName:
      return evaluate_name(static_cast<const Name&>(expression), activation);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return evaluate_items(static_cast<const Collection&>(expression), activation);
    case ExpressionKind::kDict:
      return evaluate_dict(static_cast<const DictDisplay&>(expression), activation);
    case ExpressionKind::kNot:
      return boolean(!truth(evaluate(*static_cast<const Unary&>(expression).operand, activation)));
    case ExpressionKind::kNegative:
      return negate(evaluate(*static_cast<const Unary&>(expression).operand, activation));
    case ExpressionKind::kPositive:
      return plus(evaluate(*static_cast<const Unary&>(expression).operand, activation));
    case ExpressionKind::kArithmetic:
      return evaluate_arithmetic(static_cast<const Arithmetic&>(expression), activation);
    case ExpressionKind::kConcat:
      return evaluate_concat(static_cast<const Collection&>(expression), activation);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      // The operand that decides is the value.
      const bool decides = expression.kind == ExpressionKind::kOr;
      Value value;
      for (const Expression* item : static_cast<const Collection&>(expression).items) {
        value = evaluate(*item, activation);
        if (truth(value) == decides) break;
      }
      return value;
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(static_cast<const Compare&>(expression), activation);
    case ExpressionKind::kConditional: {
      const auto& node = static_cast<const Conditional&>(expression);
      if (truth(evaluate(*node.test, activation))) return evaluate(*node.yes, activation);
      if (node.no != nullptr) return evaluate(*node.no, activation);
      return undefined(workspace_, "the condition is false and there is no 'else'");
    }
    case ExpressionKind::kAttribute: {
      const auto& node = static_cast<const AttributeOf&>(expression);
      return attribute(workspace_, evaluate(*node.object, activation), node.name);
    }
    case ExpressionKind::kItem: {
      const auto& node = static_cast<const ItemOf&>(expression);
      const Value object = evaluate(*node.object, activation);
      return item(workspace_, object, evaluate(*node.key, activation));
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(static_cast<const SliceOf&>(expression), activation);
    case ExpressionKind::kCall:
      return evaluate_call(static_cast<const Call&>(expression), activation, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(static_cast<const FilterCall&>(expression), activation, nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(static_cast<const TestCall&>(expression), activation);
  }
  return {};
}

Value Interpreter::evaluate_name(const Name& node, Activation& activation) {
  const Value& value = variable(node.variable, activation);
  if (!value.is_missing()) return value;
  return undefined(workspace_, message("'{}' is undefined", node.name));
}

Value Interpreter::evaluate_items(const Collection& node, Activation& activation) {
  Values items(workspace_);
  items.reserve(node.items.size());
  for (const Expression* item : node.items) items.push_back(evaluate(*item, activation));
  return node.kind == ExpressionKind::kList ? make_list(workspace_, items)
                                            : make_tuple(workspace_, std::span<const Value>(items));
}

Value Interpreter::evaluate_dict(const DictDisplay& node, Activation& activation) {
  Dict* dict = workspace_.make<Dict>();
  for (const auto& pair : node.pairs) {
    const Value key = evaluate(*pair.key, activation);
    set(workspace_, *dict, key, evaluate(*pair.value, activation));
  }
  return dict_value(dict);
}

size_t Interpreter::add_texts(std::span<const Arithmetic::Term> terms, size_t first,
                              Activation& activation, TextBuilder& out, Value& other) {
  for (size_t i = first; i < terms.size(); ++i) {
    if (terms[i].op != Operator::kAdd) {
      other = {};
      return i;
    }
    other = evaluate(*terms[i].operand, activation);
    if (!other.is_text() || other.text->is_markup) return i;
    out.append(*other.text);
  }
  other = {};
  return terms.size();
}

Value Interpreter::evaluate_arithmetic(const Arithmetic& node, Activation& activation) {
  Value value = evaluate(*node.first, activation);
  for (size_t i = 0; i < node.rest.size();) {
    const Arithmetic::Term& term = node.rest[i];
    Value operand;
    // Sums of texts are joined in one go: a template adds up whole messages this way.
    if (term.op == Operator::kAdd && value.is_text() && !value.text->is_markup) {
      TextBuilder added(workspace_);
      const size_t end = add_texts(node.rest, i, activation, added, operand);
      value = text_value(concatenate(workspace_, *value.text, added));
      i = end;
      if (i == node.rest.size()) break;
    }
    if (operand.is_missing()) operand = evaluate(*node.rest[i].operand, activation);
    line_ = node.line;
    value = calculate(workspace_, node.rest[i].op, value, operand);
    ++i;
  }
  return value;
}

Value Interpreter::evaluate_concat(const Collection& node, Activation& activation) {
  const Text* first = to_text(workspace_, evaluate(*node.items[0], activation));
  TextBuilder added(workspace_);
  for (const Expression* item : node.items.subspan(1)) {
    append_str(workspace_, added, evaluate(*item, activation));
  }
  return text_value(concatenate(workspace_, *first, added));
}

Value Interpreter::evaluate_compare(const Compare& node, Activation& activation) {
  Value left = evaluate(*node.first, activation);
  for (const Compare::Term& term : node.rest) {
    const Value right = evaluate(*term.operand, activation);
    if (!compare(workspace_, term.comparison, left, right)) return boolean(false);
    left = right;
  }
  return boolean(true);
}

Value Interpreter::evaluate_slice(const SliceOf& node, Activation& activation) {
  const auto part = [&](const Expression* expression) {
    return expression == nullptr ? none() : evaluate(*expression, activation);
  };
  const Value object = evaluate(*node.object, activation);
  const Value start = part(node.start);
  const Value stop = part(node.stop);
  return slice(workspace_, object, start, stop, part(node.step));
}

Interpreter::Evaluated Interpreter::evaluate_arguments(const CallArguments& node,
                                                       Activation& activation) {
  Evaluated arguments(workspace_);
  arguments.positional.reserve(node.positional.size());
  for (const Expression* argument : node.positional) {
    arguments.positional.push_back(evaluate(*argument, activation));
  }
  for (const auto& argument : node.named) {
    arguments.named.push_back({argument.name, evaluate(*argument.value, activation)});
  }
  if (node.star != nullptr || node.star_star != nullptr) {
    add_star_arguments(node, activation, arguments);
  }
  return arguments;
}

void Interpreter::add_star_arguments(const CallArguments& node, Activation& activation,
                                     Evaluated& arguments) {
  if (node.star != nullptr) {
    const auto items = items_of(workspace_, evaluate(*node.star, activation));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (node.star_star == nullptr) return;
  const Value dict = evaluate(*node.star_star, activation);
  if (!dict.is(Kind::kDict)) fail("what follows ** must be a dict, not a {}", type_name(dict));
  for (const Dict::Entry& entry : dict.dict->items()) {
    workspace_.tick();
    if (!entry.key.is_text()) fail("the names of arguments must be texts");
    const std::string_view name = entry.key.text->bytes;
    workspace_.tick(static_cast<int64_t>(node.named.size()));
    workspace_.tick_bytes(name.size());
    for (const auto& argument : node.named) {
      if (argument.name == name) fail("the argument '{}' is given twice", name);
    }
    arguments.named.push_back({name, entry.value, entry.key.text->has_user_bytes()});
  }
}

Value Interpreter::evaluate_call(const Call& node, Activation& activation, const Value* caller) {
  const Value callee = evaluate(*node.callee, activation);
  Evaluated arguments = evaluate_arguments(node.arguments, activation);
  if (caller != nullptr) {
    for (const Argument& argument : arguments.named) {
      if (argument.name == "caller") fail("the argument 'caller' is given twice");
    }
    arguments.named.push_back({"caller", *caller});
  }
  line_ = node.line;
  return call(callee, arguments.view());
}

Value Interpreter::evaluate_filter(const FilterCall& node, Activation& activation,
                                   const Value* block) {
  workspace_.check_stack();
  Value operand;
  if (node.operand == nullptr) {
    operand = *block;
  } else if (block != nullptr && node.operand->kind == ExpressionKind::kFilter) {
    operand = evaluate_filter(static_cast<const FilterCall&>(*node.operand), activation, block);
  } else {
    operand = evaluate(*node.operand, activation);
  }
  const Evaluated arguments = evaluate_arguments(node.arguments, activation);
  line_ = node.line;
  if (node.filter == nullptr) fail("there is no filter '{}'", node.name);
  return node.filter->call(workspace_, operand, arguments.view());
}

Value Interpreter::evaluate_test(const TestCall& node, Activation& activation) {
  const Value operand = evaluate(*node.operand, activation);
  const Evaluated arguments = evaluate_arguments(node.arguments, activation);
  line_ = node.line;
  if (node.test == nullptr) fail("there is no test '{}'", node.name);
  return boolean(node.test->call(workspace_, operand, arguments.view()));
}

}  // namespace pagoda::model::jinja
