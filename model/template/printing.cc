#include "model/template/printing.h"

#include <charconv>
#include <cmath>

#include "model/template/callables.h"

namespace pagoda::model::jinja {

namespace {

// The escape of a character within quotes, empty if it stands as it is.
std::string escape_of(char32_t code, char quote) {
  switch (code) {
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (code == static_cast<char32_t>(quote)) return {'\\', quote};
  if (is_printable(code)) return {};
  const auto number = static_cast<uint32_t>(code);
  if (code < 0x100) return fmt::format("\\x{:02x}", number);
  if (code < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\U{:08x}", number);
}

void append_quoted(Workspace& workspace, TextBuilder& out, const Text& text) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  const bool has_single = text.bytes.find('\'') != std::string_view::npos;
  const bool has_double = text.bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view quotes(&quote, 1);
  const bool from_user = text.has_user_bytes();
  if (text.is_markup) out.append("Markup(", from_user);
  out.append(quotes, from_user);
  size_t plain_begin = 0;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    const std::string escape = escape_of(character.code, quote);
    if (!escape.empty()) {
      out.append(text, plain_begin, at);
      out.append(escape, is_from_user(text, at));
      plain_begin = at + character.len;
    }
    at += character.len;
  }
  out.append(text, plain_begin, text.bytes.size());
  out.append(quotes, from_user);
  if (text.is_markup) out.append(")", from_user);
}

void append_items(Workspace& workspace, TextBuilder& out, std::span<const Value> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append_neutral(", ");
    append_repr(workspace, out, items[i]);
  }
}

void append_dict(Workspace& workspace, TextBuilder& out, const Dict& dict) {
  out.append_neutral("{");
  for (uint32_t i = 0; i < dict.size; ++i) {
    if (i > 0) out.append_neutral(", ");
    append_repr(workspace, out, dict.entries[i].key);
    out.append_neutral(": ");
    append_repr(workspace, out, dict.entries[i].value);
  }
  out.append_neutral("}");
}

void append_range(TextBuilder& out, const Range& range) {
  out.append_neutral(range.step == 1
                         ? fmt::format("range({}, {})", range.start, range.stop)
                         : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
}

void append_view(Workspace& workspace, TextBuilder& out, const Value& view) {
  out.append_neutral(type_name(view));
  out.append_neutral("([");
  Iteration iteration(workspace, view);
  bool first = true;
  for (Value item; iteration.next(workspace, item); first = false) {
    if (!first) out.append_neutral(", ");
    append_repr(workspace, out, item);
  }
  out.append_neutral("])");
}

}  // namespace

std::string print_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits_begin = scientific.data() + e + 1;
  if (*digits_begin == '+') ++digits_begin;
  std::from_chars(digits_begin, end, exponent);
  if (exponent >= -4 && exponent < 16) {
    std::string text(400, '\0');
    const auto fixed_end =
        std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed).ptr;
    text.resize(static_cast<size_t>(fixed_end - text.data()));
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
  }
  return fmt::format("{}e{}{:02d}", scientific.substr(0, e), exponent < 0 ? '-' : '+',
                     std::abs(exponent));
}

void append_str(Workspace& workspace, TextBuilder& out, const Value& value) {
  if (value.is_text()) {
    out.append(*value.text);
  } else if (!value.is(Kind::kUndefined) && !value.is_missing()) {
    append_repr(workspace, out, value);
  }
}

void append_repr(Workspace& workspace, TextBuilder& out, const Value& value) {
  workspace.tick();
  workspace.check_stack();
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return out.append_neutral("Undefined");
    case Kind::kNone:
      return out.append_neutral("None");
    case Kind::kBool:
      return out.append_neutral(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out.append_neutral(fmt::format_int(value.integer).c_str());
    case Kind::kBigInt:
      return out.append_neutral(fmt::format_int(value.big).c_str());
    case Kind::kFloat:
      return out.append_neutral(print_float(value.real));
    case Kind::kText:
      return append_quoted(workspace, out, *value.text);
    case Kind::kList:
      out.append_neutral("[");
      append_items(workspace, out, value.sequence->items);
      return out.append_neutral("]");
    case Kind::kTuple:
      out.append_neutral("(");
      append_items(workspace, out, value.sequence->items);
      return out.append_neutral(value.sequence->items.size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return append_dict(workspace, out, *value.dict);
    case Kind::kNamespace:
      out.append_neutral("<Namespace ");
      append_dict(workspace, out, *value.dict);
      return out.append_neutral(">");
    case Kind::kDictView:
      return append_view(workspace, out, value);
    case Kind::kRange:
      return append_range(out, *value.range);
    case Kind::kMacro:
    case Kind::kLoop:
      return append_callable(workspace, out, value);
    case Kind::kIterator:
    case Kind::kMethod:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner:
      // Python writes an address here, which no template can mean.
      return out.append_neutral(fmt::format("<{} object>", type_name(value)));
  }
}

const Text* to_text(Workspace& workspace, const Value& value) {
  if (value.is_text()) return value.text;
  TextBuilder out(workspace);
  append_str(workspace, out, value);
  return out.finish(workspace);
}

std::string shown(Workspace& workspace, const Value& value) {
  constexpr size_t kMaxBytes = 60;
  TextBuilder out(workspace);
  const auto cut = [](std::string_view text) {
    size_t end = kMaxBytes;
    while (end > 0 && !is_character_begin(text[end])) --end;
    return end;
  };
  if (value.is_text() && value.text->bytes.size() > kMaxBytes) {
    const Text& text = *value.text;
    append_quoted(workspace, out, *sub_text(workspace, text, 0, cut(text.bytes)));
    return std::string(out.bytes()) + "…";
  }
  append_repr(workspace, out, value);
  if (out.size() <= kMaxBytes) return std::string(out.bytes());
  return std::string(out.bytes().substr(0, cut(out.bytes()))) + "…";
}

}  // namespace pagoda::model::jinja
