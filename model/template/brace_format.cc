// str.format (format.h).
#include <algorithm>
#include <optional>

#include "model/template/format.h"
#include "model/template/literals.h"
#include "model/template/number_format.h"
#include "model/template/operations.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

struct Field {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  bool zero_padded = false;
  int64_t width = 0;
  NumberFormat number;
};

Field parse_spec(std::string_view spec) {
  Field field;
  size_t at = 0;
  const auto peek = [&] { return at < spec.size() ? spec[at] : '\0'; };
  const auto read_number = [&] {
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = number * 10 + (spec[at++] - '0');
      if (number > kMaxFormatWidth) fail("a format asks for too wide a field");
    }
    return number;
  };
  constexpr std::string_view kAligns = "<>^=";
  const size_t first_len = spec.empty() ? 0 : first_character(spec).len;
  if (first_len < spec.size() && kAligns.find(spec[first_len]) != std::string_view::npos) {
    field.fill = spec.substr(0, first_len);
    field.align = spec[first_len];
    at = first_len + 1;
  } else if (!spec.empty() && kAligns.find(spec[0]) != std::string_view::npos) {
    field.align = spec[0];
    at = 1;
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') field.number.sign = spec[at++];
  if (peek() == '#') {
    field.number.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    field.zero_padded = true;
    if (field.align == 0) {
      field.fill = "0";
      field.align = '=';
    }
    ++at;
  }
  field.width = read_number();
  if (peek() == ',' || peek() == '_') field.number.grouping = spec[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') fail("a format has no digits after its point");
    field.number.precision = read_number();
  }
  if (at < spec.size()) field.number.type = spec[at++];
  if (at != spec.size()) fail("a format '{}' is not understood", spec);
  return field;
}

void append_padded(Workspace& workspace, TextBuilder& out, const Text& text, const Field& field,
                   char default_align) {
  const char align = field.align == 0 ? default_align : field.align;
  const Side side = align == '<' ? Side::kLeft : Side::kRight;
  const Text& fill = *make_text(workspace, field.fill);
  if (align != '^') return out.append(*pad(workspace, text, field.width, fill, side));
  // Here the odd blank goes right of a text in the middle.
  const int64_t missing = field.width - static_cast<int64_t>(length(workspace, text));
  const auto left = static_cast<size_t>(std::max<int64_t>(missing, 0) / 2);
  out.append_repeated(fill, left);
  out.append(text);
  out.append_repeated(fill, static_cast<size_t>(std::max<int64_t>(missing, 0)) - left);
}

void append_text_field(Workspace& workspace, TextBuilder& out, const Text& text,
                       const Field& field) {
  const NumberFormat& number = field.number;
  if ((number.type != 0 && number.type != 's') || number.grouping != 0 || number.sign != '-' ||
      number.alternate || (field.align == '=' && !field.zero_padded)) {
    fail("a format for numbers is given a text");
  }
  const Text* cut = &text;
  if (number.precision >= 0) {
    cut = sub_text(workspace, text, 0,
                   offset_of(workspace, text, static_cast<size_t>(number.precision)));
  }
  Field padded = field;
  if (padded.align == '=') padded.align = '<';
  append_padded(workspace, out, *cut, padded, '<');
}

void append_number_field(Workspace& workspace, TextBuilder& out, const Value& value, Field field) {
  const char type = field.number.type;
  constexpr std::string_view kInteger = "dboxX";
  constexpr std::string_view kReal = "eEfFgG%";
  const bool is_float = value.is(Kind::kFloat);
  if (type == 'n') field.number.type = is_float ? 'g' : 'd';
  if (type == 'c' && !is_float) {
    const int64_t code = as_index(value, "a character");
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      fail("a format 'c' needs a character");
    }
    std::string character;
    append_utf8(character, static_cast<char32_t>(code));
    return append_padded(workspace, out, *make_text(workspace, character, true), field, '<');
  }
  const bool fits = type == 0 || type == 'n' || kReal.find(type) != std::string_view::npos ||
                    (!is_float && kInteger.find(type) != std::string_view::npos);
  if (!fits) fail("a format '{}' does not suit a {}", type, type_name(value));
  const bool is_whole = !is_float && kReal.find(type) == std::string_view::npos;
  if (is_whole && field.number.precision >= 0) fail("an integer has no precision");
  if (type == 0 && !is_float) field.number.type = 'd';
  const PrintedNumber number = print_number(value, field.number);
  if (field.align != '=') {
    const Text* text = make_text(workspace, number.sign + number.digits);
    return append_padded(workspace, out, *text, field, '>');
  }
  const int64_t missing =
      field.width - static_cast<int64_t>(number.sign.size() + number.digits.size());
  if (field.number.grouping != 0 && missing > 0 && field.fill == "0") {
    fail("zeros before grouped digits are not supported");
  }
  out.append(number.sign, false);
  out.append_repeated(*make_text(workspace, field.fill),
                      static_cast<size_t>(std::max<int64_t>(missing, 0)));
  out.append(number.digits, false);
}

class BraceFormatter {
 public:
  BraceFormatter(Workspace& workspace, const Arguments& arguments)
      : workspace_(workspace), arguments_(arguments) {}

  void run(const Text& format, TextBuilder& out, int depth) {
    if (depth > 1) fail("the fields of a format nest too deeply");
    workspace_.tick_bytes(format.bytes.size());
    const std::string_view text = format.bytes;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, brace);
      if (brace == text.size()) return;
      workspace_.tick();
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') fail("a format has a '}}' that closes nothing");
      const size_t end = end_of_field(text, brace + 1);
      append_field(*sub_text(workspace_, format, brace + 1, end), out, depth);
      at = end + 1;
    }
  }

 private:
  static size_t end_of_field(std::string_view text, size_t at) {
    int depth = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '[') {
        // Within brackets all but the closing one is part of the key.
        at = std::min(text.find(']', at), text.size() - 1);
        continue;
      }
      if (text[at] == '{') ++depth;
      if (text[at] == '}' && --depth == 0) return at;
    }
    fail("a format has a '{{' that is never closed");
  }

  void append_field(const Text& field, TextBuilder& out, int depth) {
    const std::string_view text = field.bytes;
    size_t end = 0;
    while (end < text.size() && text[end] != '!' && text[end] != ':') {
      if (text[end] == '[') end = std::min(text.find(']', end), text.size() - 1);
      ++end;
    }
    Value value = find_value(text.substr(0, end));
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size()) fail("a format has no conversion after '!'");
      value = convert(value, text[end + 1]);
      end += 2;
      if (end < text.size() && text[end] != ':') fail("a format has more after its conversion");
    }
    if (end >= text.size()) return append_str(workspace_, out, value);
    TextBuilder spec(workspace_);
    run(*sub_text(workspace_, field, end + 1, text.size()), spec, depth + 1);
    TextBuilder piece(workspace_);
    append_formatted(workspace_, piece, value, spec.bytes());
    // What a client's format fills a field with is the client's.
    if (spec.finish(workspace_)->has_user_bytes()) return out.append(piece.bytes(), true);
    out.append(*piece.finish(workspace_));
  }

  Value convert(const Value& value, char conversion) {
    TextBuilder text(workspace_);
    if (conversion == 's') {
      append_str(workspace_, text, value);
    } else if (conversion == 'r' || conversion == 'a') {
      append_repr(workspace_, text, value);
    } else {
      fail("a format has the unknown conversion '!{}'", conversion);
    }
    return text_value(text.finish(workspace_));
  }

  Value find_value(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first_value(name.substr(0, end));
    for (size_t at = end; at < name.size();) {
      if (name[at] == '.') {
        const size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        if (next == at + 1) fail("a format has an empty attribute");
        value = attribute(workspace_, value, name.substr(at + 1, next - at - 1));
        at = next;
        continue;
      }
      if (name[at] != '[') fail("a format has a field '{}' that is not understood", name);
      const size_t bracket = name.find(']', at);
      if (bracket == std::string_view::npos || bracket == at + 1) {
        fail("a format has a field '{}' that is not understood", name);
      }
      const std::string_view key = name.substr(at + 1, bracket - at - 1);
      const auto index = as_number(key);
      value = item(workspace_, value, index ? integer(*index) : make_string(workspace_, key));
      at = bracket + 1;
    }
    return value;
  }

  static std::optional<int64_t> as_number(std::string_view text) {
    const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    return is_number ? parse_int(text, 10) : std::nullopt;
  }

  Value first_value(std::string_view name) {
    workspace_.tick(static_cast<int64_t>(arguments_.named.size()));
    const auto number = as_number(name);
    if (number || name.empty()) {
      const bool is_automatic = name.empty();
      if (numbering_ && *numbering_ != is_automatic) {
        fail("a format mixes numbered and unnumbered fields");
      }
      numbering_ = is_automatic;
      const auto index = is_automatic ? next_++ : static_cast<size_t>(*number);
      if (index >= arguments_.positional.size()) fail("a format has too few values");
      return arguments_.positional[index];
    }
    for (const Argument& argument : arguments_.named) {
      if (argument.name == name) return argument.value;
    }
    fail("a format finds no value '{}'", name);
  }

  Workspace& workspace_;
  const Arguments& arguments_;
  std::optional<bool> numbering_;  // whether fields are numbered by their order
  size_t next_ = 0;
};

}  // namespace

void append_formatted(Workspace& workspace, TextBuilder& out, const Value& value,
                      std::string_view spec) {
  if (spec.empty()) return append_str(workspace, out, value);
  const Field field = parse_spec(spec);
  if (value.is_text()) return append_text_field(workspace, out, *value.text, field);
  if (!value.is_number()) fail("a {} takes no format", type_name(value));
  append_number_field(workspace, out, value, field);
}

Value format_braces(Workspace& workspace, const Text& format, const Arguments& arguments) {
  TextBuilder out(workspace);
  BraceFormatter(workspace, arguments).run(format, out, 0);
  return text_value(out.finish(workspace));
}

}  // namespace pagoda::model::jinja
