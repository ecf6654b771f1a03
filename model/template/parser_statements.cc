// Statements and what they assign to (parser.h).
#include <algorithm>
#include <array>

#include "model/template/parser.h"

namespace pagoda::model::jinja {

namespace {

constexpr std::array<std::string_view, 2> kForEnds = {"endfor", "else"};
constexpr std::array<std::string_view, 1> kForElseEnds = {"endfor"};
constexpr std::array<std::string_view, 3> kIfEnds = {"elif", "else", "endif"};
constexpr std::array<std::string_view, 1> kIfElseEnds = {"endif"};
constexpr std::array<std::string_view, 1> kSetEnds = {"endset"};
constexpr std::array<std::string_view, 1> kMacroEnds = {"endmacro"};
constexpr std::array<std::string_view, 1> kCallEnds = {"endcall"};
constexpr std::array<std::string_view, 1> kFilterEnds = {"endfilter"};
constexpr std::array<std::string_view, 1> kGenerationEnds = {"endgeneration"};
constexpr std::array<std::string_view, 1> kWithEnds = {"endwith"};

// Tags that jinja2 has and a chat template has no use for.
constexpr std::array<std::string_view, 6> kOtherTemplates = {"include", "import", "from",
                                                             "extends", "block",  "autoescape"};

bool is_any_of(const Token& token, std::span<const std::string_view> names) {
  return token.is(TokenKind::kName) &&
         std::find(names.begin(), names.end(), token.text) != names.end();
}

}  // namespace

Body Parser::parse() {
  const std::vector<Statement*> body = parse_until({});
  return workspace_.copy(body);
}

// Up to a tag of one of `ends`, whose name is then the current token; or up to the end.
std::vector<Statement*> Parser::parse_until(Ends ends) {
  std::vector<Statement*> body;
  for (;;) {
    const Token& token = current();
    if (token.is(TokenKind::kEnd)) return body;
    if (token.is(TokenKind::kData)) {
      auto* data = make<Data>(StatementKind::kData, token.line);
      data->text = view_text(workspace_, take().text);
      body.push_back(data);
    } else if (token.is(TokenKind::kVariableBegin)) {
      auto* output = make<Output>(StatementKind::kOutput, take().line);
      output->items = workspace_.copy(std::vector<Expression*>{parse_tuple(true, false)});
      expect(TokenKind::kVariableEnd, "'}}'");
      body.push_back(output);
    } else {
      expect(TokenKind::kBlockBegin, "a tag");
      if (is_any_of(current(), ends)) return body;
      body.push_back(parse_statement());
      expect(TokenKind::kBlockEnd, "'%}'");
    }
  }
}

// The body after the rest of a tag. With drop_end the name of the end tag is taken too.
Body Parser::parse_body(Ends ends, bool drop_end) {
  const Nesting nesting(*this);
  const int32_t line = current().line;
  take_operator(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  const std::vector<Statement*> body = parse_until(ends);
  if (current().is(TokenKind::kEnd)) {
    fail_at(line, "a block has no end; '{}' is missing", ends.back());
  }
  if (drop_end) take();
  return workspace_.copy(body);
}

Statement* Parser::parse_statement() {
  const Token& token = current();
  if (token.is_name("for")) return parse_for();
  if (token.is_name("if")) return parse_if();
  if (token.is_name("set")) return parse_set();
  if (token.is_name("macro")) return parse_macro();
  if (token.is_name("call")) return parse_call_block();
  if (token.is_name("filter")) return parse_filter_block();
  if (token.is_name("with")) return parse_with();
  if (token.is_name("generation")) return parse_generation();
  if (token.is_name("print")) return parse_print();
  if (token.is_name("break")) return make<Statement>(StatementKind::kBreak, take().line);
  if (token.is_name("continue")) return make<Statement>(StatementKind::kContinue, take().line);
  if (is_any_of(token, kOtherTemplates)) {
    fail_at(token.line, "'{}' is not supported: a chat template stands alone", token.text);
  }
  if (!token.is(TokenKind::kName)) {
    fail_at(token.line, "{} stands where the name of a tag is expected", describe(token));
  }
  fail_at(token.line, "there is no tag '{}' here", token.text);
}

Statement* Parser::parse_for() {
  auto* node = make<ForStatement>(StatementKind::kFor, take().line);
  node->target = parse_target(false);
  expect_name("in");
  node->iterable = parse_tuple(false, false);
  if (take_name("if")) node->test = parse_expression();
  node->is_recursive = take_name("recursive");
  node->body = parse_body(kForEnds, false);
  if (take().text == "else") {
    node->has_otherwise = true;
    node->otherwise = parse_body(kForElseEnds);
  }
  return node;
}

Statement* Parser::parse_if() {
  auto* node = make<IfStatement>(StatementKind::kIf, current().line);
  std::vector<IfStatement::Branch> branches;
  do {
    take();
    Expression* test = parse_tuple(false, false);
    branches.push_back({test, parse_body(kIfEnds, false)});
  } while (current().is_name("elif"));
  if (take().text == "else") node->otherwise = parse_body(kIfElseEnds);
  node->branches = workspace_.copy(branches);
  return node;
}

Statement* Parser::parse_set() {
  const int32_t line = take().line;
  const Target target = parse_target(true);
  if (take_operator("=")) {
    auto* node = make<SetStatement>(StatementKind::kSet, line);
    node->target = target;
    node->value = parse_tuple(true, false);
    return node;
  }
  auto* node = make<SetBlock>(StatementKind::kSetBlock, line);
  node->target = target;
  while (take_operator("|")) node->filter = parse_filter(node->filter);
  node->body = parse_body(kSetEnds);
  return node;
}

std::span<Parameter> Parser::parse_parameters() {
  expect_operator("(");
  std::vector<Parameter> parameters;
  while (!current().is_operator(")")) {
    if (!parameters.empty()) expect_operator(",");
    Parameter parameter;
    const int32_t line = current().line;
    parameter.name = parse_target_name();
    workspace_.tick(static_cast<int64_t>(parameters.size()));
    for (const Parameter& other : parameters) {
      if (other.name == parameter.name) {
        fail_at(line, "the parameter '{}' stands twice", parameter.name);
      }
    }
    if (take_operator("=")) {
      parameter.otherwise = parse_expression();
    } else if (!parameters.empty() && parameters.back().otherwise != nullptr) {
      fail_at(line, "the parameter '{}' needs a default, as the one before has one",
              parameter.name);
    }
    parameters.push_back(parameter);
  }
  expect_operator(")");
  return workspace_.copy(parameters);
}

Statement* Parser::parse_macro() {
  auto* node = make<MacroStatement>(StatementKind::kMacro, take().line);
  node->code = workspace_.make<MacroCode>();
  node->code->name = parse_target_name();
  node->code->parameters = parse_parameters();
  node->code->body = parse_body(kMacroEnds);
  return node;
}

Statement* Parser::parse_call_block() {
  auto* node = make<CallBlock>(StatementKind::kCallBlock, take().line);
  node->code = workspace_.make<MacroCode>();
  if (current().is_operator("(")) node->code->parameters = parse_parameters();
  Expression* call = parse_expression();
  if (call->kind != ExpressionKind::kCall) fail_at(node->line, "'call' needs a call of a macro");
  node->call = static_cast<Call*>(call);
  node->code->body = parse_body(kCallEnds);
  return node;
}

// Marks what the model says; for the text it is a function that is called on the spot.
Statement* Parser::parse_generation() {
  auto* node = make<CallBlock>(StatementKind::kGeneration, take().line);
  node->code = workspace_.make<MacroCode>();
  node->code->body = parse_body(kGenerationEnds);
  return node;
}

Statement* Parser::parse_filter_block() {
  auto* node = make<FilterBlock>(StatementKind::kFilterBlock, take().line);
  node->filter = parse_filter(nullptr);
  while (take_operator("|")) node->filter = parse_filter(node->filter);
  node->body = parse_body(kFilterEnds);
  return node;
}

Statement* Parser::parse_with() {
  auto* node = make<WithStatement>(StatementKind::kWith, take().line);
  std::vector<Target> targets;
  std::vector<Expression*> values;
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!targets.empty()) expect_operator(",");
    targets.push_back(parse_target(false));
    expect_operator("=");
    values.push_back(parse_expression());
  }
  node->targets = workspace_.copy(targets);
  node->values = workspace_.copy(values);
  node->body = parse_body(kWithEnds);
  return node;
}

Statement* Parser::parse_print() {
  auto* node = make<Output>(StatementKind::kOutput, take().line);
  std::vector<Expression*> items;
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!items.empty()) expect_operator(",");
    items.push_back(parse_expression());
  }
  node->items = workspace_.copy(items);
  return node;
}

std::string_view Parser::parse_target_name() {
  const int32_t line = current().line;
  const std::string_view name = expect_any_name("a name");
  constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                          "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end()) {
    fail_at(line, "'{}' is a constant and cannot be assigned to", name);
  }
  return name;
}

// Names, and tuples of them; with_namespace also ns.name.
Target Parser::parse_target(bool with_namespace) {
  const int32_t line = current().line;
  std::vector<Target> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end()) break;
    items.push_back(parse_target_item(with_namespace));
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return items[0];
  if (items.empty()) {
    fail_at(line, "{} stands where a name is expected", describe(current()));
  }
  return {.kind = Target::Kind::kTuple, .items = workspace_.copy(items), .line = line};
}

Target Parser::parse_target_item(bool with_namespace) {
  const Token& token = current();
  if (take_operator("(")) {
    const Expression* tuple = parse_tuple(true, true);
    expect_operator(")");
    return to_target(tuple);
  }
  if (!token.is(TokenKind::kName)) {
    fail_at(token.line, "{} cannot be assigned to", describe(token));
  }
  if (with_namespace && ahead().is_operator(".") && !token.is_name("true") &&
      !token.is_name("false") && !token.is_name("none") && !token.is_name("True") &&
      !token.is_name("False") && !token.is_name("None")) {
    take();
    take();
    return {.kind = Target::Kind::kNamespace,
            .name = token.text,
            .attribute = expect_any_name("a name"),
            .items = {},
            .line = token.line};
  }
  return {.name = parse_target_name(), .items = {}, .line = token.line};
}

// Names and tuples that were read as values, in parentheses.
Target Parser::to_target(const Expression* expression) const {
  workspace_.check_stack();
  if (expression->kind == ExpressionKind::kName) {
    return {
        .name = static_cast<const Name*>(expression)->name, .items = {}, .line = expression->line};
  }
  if (expression->kind != ExpressionKind::kTuple) {
    fail_at(expression->line, "only names can be assigned to");
  }
  std::vector<Target> items;
  for (const Expression* item : static_cast<const Collection*>(expression)->items) {
    items.push_back(to_target(item));
  }
  return {.kind = Target::Kind::kTuple, .items = workspace_.copy(items), .line = expression->line};
}

}  // namespace pagoda::model::jinja
