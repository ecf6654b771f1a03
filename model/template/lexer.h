// A template's source cut into text and tags, blanks around tags taken away as jinja2 does with
// trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/template/value.h"

namespace pagoda::model::jinja {

enum class TokenKind : uint8_t {
  kEnd,
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kText,
  kInteger,
  kFloat,
  kOperator,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int32_t line = 1;
  std::string_view text{};  // data, name, operator; the value of a string
  Value number{};

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// The tokens of a source, the last one is kEnd. Texts lie in the workspace.
Temporary<Token> tokenize(Workspace& workspace, std::string_view source);

// What to call a token in an error message.
std::string describe(const Token& token);

}  // namespace pagoda::model::jinja
