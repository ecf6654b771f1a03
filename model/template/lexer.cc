#include "model/template/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "model/template/literals.h"
#include "model/template/unicode.h"

namespace pagoda::model::jinja {

namespace {

bool is_blank(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character character = first_character(text.substr(at));
    if (!is_space(character.code)) return false;
    at += character.len;
  }
  return true;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character character = first_character(text.substr(at));
    if (!is_space(character.code)) break;
    at += character.len;
  }
  return at;
}

std::string_view without_trailing_spaces(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = last_character_begin(text);
    if (!is_space(first_character(text.substr(begin)).code)) break;
    text = text.substr(0, begin);
  }
  return text;
}

// Line ends are all \n, and one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string normal;
  normal.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      normal += source[i];
      continue;
    }
    normal += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!normal.empty() && normal.back() == '\n') normal.pop_back();
  return normal;
}

class Lexer {
 public:
  Lexer(Workspace& workspace, std::string_view source)
      : workspace_(workspace), source_(source), tokens_(workspace) {}

  Temporary<Token> run() {
    while (at_ < source_.size()) {
      workspace_.tick();
      lex_data();
    }
    push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void push(TokenKind kind, std::string_view text = {}, Value number = {}) {
    workspace_.check_room(tokens_.size() * sizeof(Token));
    tokens_.push_back({kind, line_, text, number});
  }

  void advance_to(size_t at) {
    line_ += static_cast<int32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                             source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    line_starting_ = at > at_ ? source_[at - 1] == '\n' : line_starting_;
    at_ = at;
  }

  // Data up to the next tag, then the tag.
  void lex_data() {
    size_t tag = at_;
    for (; tag < source_.size(); ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        tag = source_.size();
        break;
      }
      const char second = source_[tag + 1];
      if (second == '%' || second == '{' || second == '#') break;
    }
    const std::string_view data = source_.substr(at_, tag - at_);
    if (tag == source_.size()) {
      push_data(data);
      advance_to(tag);
      return;
    }
    const char second = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    push_data(strip_before_tag(data, sign, second == '{'));
    advance_to(tag);
    const size_t begin = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (second == '#') return lex_comment(begin);
    if (second == '{') {
      push(TokenKind::kVariableBegin);
      return lex_tag(begin, '}');
    }
    if (const size_t raw = raw_begin_end(begin); raw != 0) return lex_raw(raw);
    push(TokenKind::kBlockBegin);
    lex_tag(begin, '%');
  }

  void push_data(std::string_view data) {
    if (!data.empty()) push(TokenKind::kData, data);
  }

  // `-` takes all blanks before a tag, and without a sign those of its line go if nothing else
  // stands before it there (lstrip_blocks), but never before a variable.
  std::string_view strip_before_tag(std::string_view data, char sign, bool is_variable) const {
    if (sign == '-') return without_trailing_spaces(data);
    if (sign == '+' || is_variable) return data;
    const size_t newline = data.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return data;
    return is_blank(data.substr(line_begin)) ? data.substr(0, line_begin) : data;
  }

  void lex_comment(size_t begin) {
    // Right at the end of the source jinja2 lets an open comment or raw block pass.
    if (begin >= source_.size()) return advance_to(source_.size());
    const size_t hash = find(source_, "#}", begin);
    if (hash == std::string_view::npos) fail_at(line_, "a comment has no end");
    const char sign = hash > begin ? source_[hash - 1] : ' ';
    advance_to(end_of_tag(hash + 2, sign));
  }

  // After the closing brackets: `-` takes all blanks, no sign takes one line end (trim_blocks).
  size_t end_of_tag(size_t at, char sign) const {
    if (sign == '-') return skip_spaces(source_, at);
    if (sign != '+' && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }

  // Where a tag {% raw %} that goes on at `at` ends, 0 if it is none.
  size_t raw_begin_end(size_t at) const {
    at = skip_spaces(source_, at);
    if (!source_.substr(at).starts_with("raw")) return 0;
    at = skip_spaces(source_, at + 3);
    if (source_.substr(at).starts_with("-%}")) return skip_spaces(source_, at + 3);
    return source_.substr(at).starts_with("%}") ? at + 2 : 0;
  }

  void lex_raw(size_t begin) {
    const int32_t line = line_;
    advance_to(begin);
    if (begin >= source_.size()) return;
    for (size_t tag = find(source_, "{%", begin); tag != std::string_view::npos;
         tag = find(source_, "{%", tag + 1)) {
      workspace_.tick();
      size_t at = tag + 2;
      const char sign = at < source_.size() ? source_[at] : ' ';
      if (sign == '-' || sign == '+') ++at;
      at = skip_spaces(source_, at);
      if (!source_.substr(at).starts_with("endraw")) continue;
      at = skip_spaces(source_, at + 6);
      const char end_sign = at < source_.size() ? source_[at] : ' ';
      if (end_sign == '-' || end_sign == '+') ++at;
      if (!source_.substr(at).starts_with("%}")) continue;
      push_data(strip_before_tag(source_.substr(begin, tag - begin), sign, false));
      return advance_to(end_of_tag(at + 2, end_sign));
    }
    fail_at(line, "a raw block has no end");
  }

  // The inside of {{ }} (`bracket` is '}') or {% %} ('%') and its end.
  void lex_tag(size_t begin, char bracket) {
    advance_to(begin);
    std::string open;  // the brackets that are to be closed
    while (at_ < source_.size()) {
      workspace_.tick();
      if (open.empty() && lex_tag_end(bracket)) return;
      const Character character = first_character(source_.substr(at_));
      if (is_space(character.code)) {
        advance_to(skip_spaces(source_, at_));
      } else if (character.code >= '0' && character.code <= '9') {
        lex_number();
      } else if (is_identifier_begin(character.code)) {
        lex_name();
      } else if (character.code == '"' || character.code == '\'') {
        lex_string();
      } else {
        lex_operator(open);
      }
    }
  }

  bool lex_tag_end(char bracket) {
    const char sign = source_[at_];
    const bool has_sign = sign == '-' || (sign == '+' && bracket == '%');
    const size_t end = at_ + (has_sign ? 1 : 0);
    const char closing[] = {bracket, '}'};
    if (!source_.substr(end).starts_with(std::string_view(closing, 2))) return false;
    push(bracket == '%' ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
    size_t next = end + 2;
    if (bracket == '%') {
      next = end_of_tag(next, has_sign ? sign : ' ');
    } else if (has_sign) {
      next = skip_spaces(source_, next);
    }
    advance_to(next);
    return true;
  }

  void lex_name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Character character = first_character(source_.substr(end));
      if (!is_identifier_part(character.code)) break;
      end += character.len;
    }
    push(TokenKind::kName, source_.substr(at_, end - at_));
    advance_to(end);
  }

  void lex_number() {
    // After a dot, digits are the index of an item and never a fraction.
    const bool may_be_float = at_ == 0 || source_[at_ - 1] != '.';
    const NumberLiteral number = read_number(source_.substr(at_), may_be_float, line_);
    push(number.value.is(Kind::kFloat) ? TokenKind::kFloat : TokenKind::kInteger,
         source_.substr(at_, number.len), number.value);
    advance_to(at_ + number.len);
  }

  void lex_string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, "a string has no end");
    const std::string_view raw = source_.substr(at_ + 1, end - at_ - 1);
    push(TokenKind::kText, workspace_.copy(unescape_string(raw, line_)));
    advance_to(end + 1);
  }

  void lex_operator(std::string& open) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    size_t len = 0;
    for (const std::string_view op : kDouble) {
      if (looking_at(op)) len = 2;
    }
    if (len == 0 && kSingle.find(source_[at_]) != std::string_view::npos) len = 1;
    if (len == 0) {
      const size_t n_bytes = first_character(source_.substr(at_)).len;
      fail_at(line_, "the character '{}' is not expected here", source_.substr(at_, n_bytes));
    }
    const std::string_view op = source_.substr(at_, len);
    balance(op[0], open);
    push(TokenKind::kOperator, op);
    advance_to(at_ + len);
  }

  void balance(char op, std::string& open) const {
    if (op == '(') open += ')';
    if (op == '[') open += ']';
    if (op == '{') open += '}';
    if (op != ')' && op != ']' && op != '}') return;
    if (open.empty()) fail_at(line_, "'{}' closes nothing", op);
    if (open.back() != op) fail_at(line_, "'{}' stands where '{}' is expected", op, open.back());
    open.pop_back();
  }

  Workspace& workspace_;
  std::string_view source_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_starting_ = true;
  Temporary<Token> tokens_;
};

}  // namespace

Temporary<Token> tokenize(Workspace& workspace, std::string_view source) {
  return Lexer(workspace, workspace.copy(normalize_newlines(source))).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "text";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kText:
      return "a string";
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      return fmt::format("'{}'", token.text);
  }
  return "nothing";
}

}  // namespace pagoda::model::jinja
