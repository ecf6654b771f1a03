// Tokens to a tree. Follows jinja2's grammar, its oddities included: what it refuses is refused.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/template/ast.h"
#include "model/template/lexer.h"

namespace pagoda::model::jinja {

class Parser {
 public:
  Parser(Workspace& workspace, Temporary<Token> tokens)
      : workspace_(workspace), tokens_(std::move(tokens)) {}

  Body parse();

 private:
  using Ends = std::span<const std::string_view>;

  // One level of tags, of signs, or of whole expressions in brackets more.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      parser_.workspace_.check_stack();
      if (++parser_.nesting_ > parser_.workspace_.max_depth()) parser_.workspace_.fail_depth();
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool take_operator(std::string_view op);
  bool take_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string_view expect_any_name(std::string_view what);

  template <typename Node>
  Node* make(ExpressionKind kind, int32_t line) {
    Node* node = workspace_.make<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  template <typename Node>
  Node* make(StatementKind kind, int32_t line) {
    Node* node = workspace_.make<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  // Makes `node` as deep as what it holds; refuses too deep a tree.
  void deepen(Expression* node, const Expression* child) const;
  void deepen(Expression* node, const CallArguments& arguments) const;

  // Statements: parser_statements.cc.
  std::vector<Statement*> parse_until(Ends ends);
  Body parse_body(Ends ends, bool drop_end = true);
  Statement* parse_statement();
  Statement* parse_for();
  Statement* parse_if();
  Statement* parse_set();
  Statement* parse_macro();
  Statement* parse_call_block();
  Statement* parse_generation();
  Statement* parse_filter_block();
  Statement* parse_with();
  Statement* parse_print();
  std::span<Parameter> parse_parameters();
  Target parse_target(bool with_namespace);
  Target parse_target_item(bool with_namespace);
  Target to_target(const Expression* expression) const;
  std::string_view parse_target_name();

  // Expressions: parser.cc.
  Expression* parse_expression();  // with `if`
  Expression* parse_or();
  Expression* parse_and();
  Expression* parse_not();
  Expression* parse_compare();
  Expression* parse_sum();
  Expression* parse_concat();
  Expression* parse_product();
  Expression* parse_power();
  Expression* parse_unary();
  Expression* parse_unary_with_filters();
  // A chain of operators of one precedence.
  Expression* parse_chain(std::optional<Operator> (*find_operator)(const Token&),
                          Expression* (Parser::*parse_operand)());
  Expression* parse_primary();
  Expression* parse_postfix(Expression* node);
  Expression* parse_subscript(Expression* node);
  Expression* parse_index(Expression* object, int32_t line);
  Expression* parse_call(Expression* node);
  Expression* parse_filters_and_tests(Expression* node);
  FilterCall* parse_filter(Expression* operand);  // after the |
  Expression* parse_test(Expression* operand);
  Expression* parse_list();
  Expression* parse_dict();
  // Expressions with commas between; without parentheses an empty one is refused.
  Expression* parse_tuple(bool with_condition, bool in_parentheses);
  bool at_tuple_end() const;
  CallArguments parse_arguments();
  std::string_view parse_dotted_name();

  Workspace& workspace_;
  Temporary<Token> tokens_;
  size_t at_ = 0;
  int32_t nesting_ = 0;
};

}  // namespace pagoda::model::jinja
