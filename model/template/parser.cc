#include "model/template/parser.h"

#include <algorithm>
#include <optional>

namespace pagoda::model::jinja {

namespace {

std::optional<Comparison> comparison_of(std::string_view op) {
  if (op == "==") return Comparison::kEqual;
  if (op == "!=") return Comparison::kNotEqual;
  if (op == "<") return Comparison::kLess;
  if (op == "<=") return Comparison::kLessEqual;
  if (op == ">") return Comparison::kGreater;
  if (op == ">=") return Comparison::kGreaterEqual;
  return std::nullopt;
}

std::optional<Operator> sum_operator(const Token& token) {
  if (token.is_operator("+")) return Operator::kAdd;
  if (token.is_operator("-")) return Operator::kSubtract;
  return std::nullopt;
}

std::optional<Operator> product_operator(const Token& token) {
  if (token.is_operator("*")) return Operator::kMultiply;
  if (token.is_operator("/")) return Operator::kDivide;
  if (token.is_operator("//")) return Operator::kFloorDivide;
  if (token.is_operator("%")) return Operator::kModulo;
  return std::nullopt;
}

std::optional<Operator> power_operator(const Token& token) {
  if (token.is_operator("**")) return Operator::kPower;
  return std::nullopt;
}

}  // namespace

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::take_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect(TokenKind kind, std::string_view what) {
  if (!current().is(kind)) {
    fail_at(current().line, "{} stands where {} is expected", describe(current()), what);
  }
  take();
}

void Parser::expect_operator(std::string_view op) {
  if (!take_operator(op)) {
    fail_at(current().line, "{} stands where '{}' is expected", describe(current()), op);
  }
}

void Parser::expect_name(std::string_view name) {
  if (!take_name(name)) {
    fail_at(current().line, "{} stands where '{}' is expected", describe(current()), name);
  }
}

std::string_view Parser::expect_any_name(std::string_view what) {
  if (!current().is(TokenKind::kName)) {
    fail_at(current().line, "{} stands where {} is expected", describe(current()), what);
  }
  return take().text;
}

void Parser::deepen(Expression* node, const Expression* child) const {
  if (child == nullptr) return;
  node->depth = std::max(node->depth, child->depth + 1);
  if (node->depth > workspace_.max_depth()) workspace_.fail_depth();
}

void Parser::deepen(Expression* node, const CallArguments& arguments) const {
  for (const Expression* argument : arguments.positional) deepen(node, argument);
  for (const auto& argument : arguments.named) deepen(node, argument.value);
  deepen(node, arguments.star);
  deepen(node, arguments.star_star);
}

Expression* Parser::parse_expression() {
  const Nesting nesting(*this);
  Expression* value = parse_or();
  while (current().is_name("if")) {
    auto* node = make<Conditional>(ExpressionKind::kConditional, take().line);
    node->yes = value;
    node->test = parse_or();
    if (take_name("else")) node->no = parse_expression();
    deepen(node, node->yes);
    deepen(node, node->test);
    deepen(node, node->no);
    value = node;
  }
  return value;
}

Expression* Parser::parse_or() {
  Expression* first = parse_and();
  if (!current().is_name("or")) return first;
  auto* node = make<Collection>(ExpressionKind::kOr, first->line);
  std::vector<Expression*> items = {first};
  while (take_name("or")) items.push_back(parse_and());
  for (const Expression* item : items) deepen(node, item);
  node->items = workspace_.copy(items);
  return node;
}

Expression* Parser::parse_and() {
  Expression* first = parse_not();
  if (!current().is_name("and")) return first;
  auto* node = make<Collection>(ExpressionKind::kAnd, first->line);
  std::vector<Expression*> items = {first};
  while (take_name("and")) items.push_back(parse_not());
  for (const Expression* item : items) deepen(node, item);
  node->items = workspace_.copy(items);
  return node;
}

Expression* Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  auto* node = make<Unary>(ExpressionKind::kNot, take().line);
  node->operand = parse_not();
  deepen(node, node->operand);
  return node;
}

Expression* Parser::parse_compare() {
  Expression* first = parse_sum();
  std::vector<Compare::Term> terms;
  for (;;) {
    const Token& token = current();
    if (const auto comparison = comparison_of(token.text);
        comparison && token.is(TokenKind::kOperator)) {
      take();
      terms.push_back({*comparison, parse_sum()});
    } else if (take_name("in")) {
      terms.push_back({Comparison::kIn, parse_sum()});
    } else if (token.is_name("not") && ahead().is_name("in")) {
      take();
      take();
      terms.push_back({Comparison::kNotIn, parse_sum()});
    } else {
      break;
    }
  }
  if (terms.empty()) return first;
  auto* node = make<Compare>(ExpressionKind::kCompare, first->line);
  node->first = first;
  deepen(node, first);
  for (const auto& term : terms) deepen(node, term.operand);
  node->rest = workspace_.copy(terms);
  return node;
}

Expression* Parser::parse_chain(std::optional<Operator> (*find_operator)(const Token&),
                                Expression* (Parser::*parse_operand)()) {
  Expression* first = (this->*parse_operand)();
  std::vector<Arithmetic::Term> terms;
  while (const auto op = find_operator(current())) {
    take();
    terms.push_back({*op, (this->*parse_operand)()});
  }
  if (terms.empty()) return first;
  auto* node = make<Arithmetic>(ExpressionKind::kArithmetic, first->line);
  node->first = first;
  deepen(node, first);
  for (const auto& term : terms) deepen(node, term.operand);
  node->rest = workspace_.copy(terms);
  return node;
}

Expression* Parser::parse_sum() { return parse_chain(sum_operator, &Parser::parse_concat); }
Expression* Parser::parse_product() { return parse_chain(product_operator, &Parser::parse_power); }
Expression* Parser::parse_power() {
  return parse_chain(power_operator, &Parser::parse_unary_with_filters);
}

Expression* Parser::parse_concat() {
  Expression* first = parse_product();
  if (!current().is_operator("~")) return first;
  auto* node = make<Collection>(ExpressionKind::kConcat, first->line);
  std::vector<Expression*> items = {first};
  while (take_operator("~")) items.push_back(parse_product());
  for (const Expression* item : items) deepen(node, item);
  node->items = workspace_.copy(items);
  return node;
}

Expression* Parser::parse_unary_with_filters() { return parse_filters_and_tests(parse_unary()); }

Expression* Parser::parse_unary() {
  Expression* node = nullptr;
  const bool is_minus = current().is_operator("-");
  if (is_minus || current().is_operator("+")) {
    const Nesting nesting(*this);
    auto* unary =
        make<Unary>(is_minus ? ExpressionKind::kNegative : ExpressionKind::kPositive, take().line);
    unary->operand = parse_unary();
    deepen(unary, unary->operand);
    node = unary;
  } else {
    node = parse_primary();
  }
  return parse_postfix(node);
}

Expression* Parser::parse_primary() {
  const Token& token = current();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (take_operator("(")) {
    Expression* node = parse_tuple(true, true);
    expect_operator(")");
    return node;
  }
  if (token.is(TokenKind::kName)) {
    take();
    const std::string_view name = token.text;
    const bool is_true = name == "true" || name == "True";
    if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
      auto* node = make<Constant>(ExpressionKind::kConstant, token.line);
      node->value = name == "none" || name == "None" ? none() : boolean(is_true);
      return node;
    }
    auto* node = make<Name>(ExpressionKind::kName, token.line);
    node->name = name;
    return node;
  }
  if (token.is(TokenKind::kText)) {
    auto* node = make<Constant>(ExpressionKind::kConstant, token.line);
    std::string text;
    while (current().is(TokenKind::kText)) text += take().text;
    node->value = make_string(workspace_, text);
    return node;
  }
  if (token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat)) {
    auto* node = make<Constant>(ExpressionKind::kConstant, token.line);
    node->value = take().number;
    return node;
  }
  fail_at(token.line, "{} stands where a value is expected", describe(token));
}

Expression* Parser::parse_list() {
  auto* node = make<Collection>(ExpressionKind::kList, take().line);
  std::vector<Expression*> items;
  while (!current().is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    items.push_back(parse_expression());
    deepen(node, items.back());
  }
  expect_operator("]");
  node->items = workspace_.copy(items);
  return node;
}

Expression* Parser::parse_dict() {
  auto* node = make<DictDisplay>(ExpressionKind::kDict, take().line);
  std::vector<DictDisplay::Pair> pairs;
  while (!current().is_operator("}")) {
    if (!pairs.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    Expression* key = parse_expression();
    expect_operator(":");
    pairs.push_back({key, parse_expression()});
    deepen(node, pairs.back().key);
    deepen(node, pairs.back().value);
  }
  expect_operator("}");
  node->pairs = workspace_.copy(pairs);
  return node;
}

bool Parser::at_tuple_end() const {
  const Token& token = current();
  return token.is(TokenKind::kVariableEnd) || token.is(TokenKind::kBlockEnd) ||
         token.is_operator(")");
}

Expression* Parser::parse_tuple(bool with_condition, bool in_parentheses) {
  const int32_t line = current().line;
  std::vector<Expression*> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end()) break;
    items.push_back(with_condition ? parse_expression() : parse_or());
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (items.empty() && !in_parentheses) {
    fail_at(current().line, "{} stands where a value is expected", describe(current()));
  }
  auto* node = make<Collection>(ExpressionKind::kTuple, line);
  for (const Expression* item : items) deepen(node, item);
  node->items = workspace_.copy(items);
  return node;
}

Expression* Parser::parse_postfix(Expression* node) {
  for (;;) {
    if (current().is_operator(".") || current().is_operator("[")) {
      node = parse_subscript(node);
    } else if (current().is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

Expression* Parser::parse_subscript(Expression* object) {
  const Token& token = take();
  if (token.is_operator("[")) return parse_index(object, token.line);
  const Token& name = take();
  if (name.is(TokenKind::kName)) {
    auto* node = make<AttributeOf>(ExpressionKind::kAttribute, token.line);
    node->object = object;
    node->name = name.text;
    deepen(node, object);
    return node;
  }
  if (!name.is(TokenKind::kInteger)) {
    fail_at(name.line, "{} stands where a name or number is expected", describe(name));
  }
  auto* node = make<ItemOf>(ExpressionKind::kItem, token.line);
  auto* key = make<Constant>(ExpressionKind::kConstant, name.line);
  key->value = name.number;
  node->object = object;
  node->key = key;
  deepen(node, object);
  return node;
}

// a[key], a[start:stop:step], and a[x, y], whose key is a tuple.
Expression* Parser::parse_index(Expression* object, int32_t line) {
  Expression* parts[3] = {};
  std::vector<Expression*> keys;
  bool is_slice = false;
  while (!current().is_operator("]")) {
    if (!keys.empty() || is_slice) expect_operator(",");
    if (is_slice) fail_at(line, "a slice cannot be part of a tuple");
    if (!current().is_operator(":")) keys.push_back(parse_expression());
    if (!current().is_operator(":")) continue;
    if (keys.size() > 1) fail_at(line, "a slice cannot be part of a tuple");
    is_slice = true;
    parts[0] = keys.empty() ? nullptr : keys[0];
    for (int part = 1; part < 3 && take_operator(":"); ++part) {
      const bool is_given =
          !current().is_operator(":") && !current().is_operator("]") && !current().is_operator(",");
      if (is_given) parts[part] = parse_expression();
    }
  }
  expect_operator("]");
  if (is_slice) {
    auto* node = make<SliceOf>(ExpressionKind::kSlice, line);
    node->object = object;
    node->start = parts[0];
    node->stop = parts[1];
    node->step = parts[2];
    deepen(node, object);
    for (const Expression* part : parts) deepen(node, part);
    return node;
  }
  auto* node = make<ItemOf>(ExpressionKind::kItem, line);
  node->object = object;
  deepen(node, object);
  if (keys.size() == 1) {
    node->key = keys[0];
  } else {
    auto* tuple = make<Collection>(ExpressionKind::kTuple, line);
    for (const Expression* key : keys) deepen(tuple, key);
    tuple->items = workspace_.copy(keys);
    node->key = tuple;
  }
  deepen(node, node->key);
  return node;
}

Expression* Parser::parse_call(Expression* callee) {
  auto* node = make<Call>(ExpressionKind::kCall, current().line);
  node->callee = callee;
  node->arguments = parse_arguments();
  deepen(node, callee);
  deepen(node, node->arguments);
  return node;
}

CallArguments Parser::parse_arguments() {
  const int32_t line = current().line;
  expect_operator("(");
  CallArguments arguments;
  std::vector<Expression*> positional;
  std::vector<CallArguments::Named> named;
  const auto require = [&](bool in_order) {
    if (!in_order) fail_at(line, "the arguments of a call are out of order");
  };
  for (bool first = true; !current().is_operator(")"); first = false) {
    if (!first) expect_operator(",");
    if (!first && current().is_operator(")")) break;
    if (take_operator("*")) {
      require(arguments.star == nullptr && arguments.star_star == nullptr);
      arguments.star = parse_expression();
    } else if (take_operator("**")) {
      require(arguments.star_star == nullptr);
      arguments.star_star = parse_expression();
    } else if (current().is(TokenKind::kName) && ahead().is_operator("=")) {
      require(arguments.star_star == nullptr);
      const std::string_view name = take().text;
      take();
      workspace_.tick(static_cast<int64_t>(named.size()));
      for (const auto& other : named) {
        if (other.name == name) fail_at(line, "the argument '{}' is given twice", name);
      }
      named.push_back({name, parse_expression()});
    } else {
      require(arguments.star == nullptr && arguments.star_star == nullptr && named.empty());
      positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
  arguments.positional = workspace_.copy(positional);
  arguments.named = workspace_.copy(named);
  return arguments;
}

Expression* Parser::parse_filters_and_tests(Expression* node) {
  for (;;) {
    if (take_operator("|")) {
      node = parse_filter(node);
    } else if (current().is_name("is")) {
      node = parse_test(node);
    } else if (current().is_operator("(")) {
      node = parse_call(node);
    } else {
      return node;
    }
  }
}

std::string_view Parser::parse_dotted_name() {
  std::string_view name = expect_any_name("a name");
  while (take_operator(".")) {
    const std::string_view part = expect_any_name("a name");
    name = workspace_.copy(fmt::format("{}.{}", name, part));
  }
  return name;
}

FilterCall* Parser::parse_filter(Expression* operand) {
  auto* node = make<FilterCall>(ExpressionKind::kFilter, current().line);
  node->operand = operand;
  node->name = parse_dotted_name();
  node->filter = find_filter(node->name);
  if (current().is_operator("(")) node->arguments = parse_arguments();
  deepen(node, operand);
  deepen(node, node->arguments);
  return node;
}

Expression* Parser::parse_test(Expression* operand) {
  const int32_t line = take().line;
  const bool is_negated = take_name("not");
  auto* node = make<TestCall>(ExpressionKind::kTest, line);
  node->operand = operand;
  node->name = parse_dotted_name();
  node->test = find_test(node->name);
  const Token& token = current();
  const bool begins_value = token.is(TokenKind::kName) || token.is(TokenKind::kText) ||
                            token.is(TokenKind::kInteger) || token.is(TokenKind::kFloat) ||
                            token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    node->arguments = parse_arguments();
  } else if (begins_value && !token.is_name("else") && !token.is_name("or") &&
             !token.is_name("and")) {
    if (token.is_name("is")) fail_at(token.line, "tests with 'is' cannot be chained");
    Expression* argument = parse_postfix(parse_primary());
    node->arguments.positional = workspace_.copy(std::vector<Expression*>{argument});
  }
  deepen(node, operand);
  deepen(node, node->arguments);
  if (!is_negated) return node;
  auto* negation = make<Unary>(ExpressionKind::kNot, line);
  negation->operand = node;
  deepen(negation, node);
  return negation;
}

}  // namespace pagoda::model::jinja
