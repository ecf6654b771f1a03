// tojson and escaping for HTML (format.h).
#include <algorithm>
#include <cmath>

#include "model/template/format.h"
#include "model/template/operations.h"
#include "model/template/printing.h"

namespace pagoda::model::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Workspace& workspace, const JsonStyle& style)
      : workspace_(workspace), style_(style), out_(workspace) {}

  void write(const Value& value) {
    workspace_.tick();
    workspace_.check_stack();
    switch (value.kind) {
      case Kind::kNone:
        return out_.append_neutral("null");
      case Kind::kBool:
        return out_.append_neutral(value.boolean ? "true" : "false");
      case Kind::kInt:
      case Kind::kBigInt:
      case Kind::kFloat:
        return out_.append_neutral(print_number(value));
      case Kind::kText:
        return write_string(*value.text);
      case Kind::kList:
      case Kind::kTuple:
        return write_list(value.sequence->items);
      case Kind::kDict:
        return write_dict(*value.dict);
      default:
        require_defined(value);
        fail("a {} cannot be written as JSON", type_name(value));
    }
  }

  const Text* finish() { return out_.finish(workspace_); }

 private:
  std::string print_number(const Value& value) {
    if (!value.is(Kind::kFloat)) {
      TextBuilder digits(workspace_);
      append_str(workspace_, digits, value);
      return std::string(digits.bytes());
    }
    if (std::isnan(value.real)) return "NaN";
    if (std::isinf(value.real)) return value.real < 0 ? "-Infinity" : "Infinity";
    return print_float(value.real);
  }

  void write_line_break() {
    if (style_.indent == nullptr) return;
    out_.append_neutral("\n");
    for (int32_t i = 0; i < depth_; ++i) {
      if (style_.indent->has_user_bytes()) {
        out_.append(*style_.indent);
      } else {
        out_.append_neutral(style_.indent->bytes);
      }
    }
  }
  void write_separator(const Text& separator) {
    if (separator.has_user_bytes()) return out_.append(separator);
    out_.append_neutral(separator.bytes);
  }

  void write_list(std::span<const Value> items) {
    if (items.empty()) return out_.append_neutral("[]");
    out_.append_neutral("[");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) write_separator(*style_.item_separator);
      write_line_break();
      write(items[i]);
    }
    --depth_;
    write_line_break();
    out_.append_neutral("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.size == 0) return out_.append_neutral("{}");
    Temporary<Dict::Entry> entries(dict.items().begin(), dict.items().end(), workspace_);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return less(workspace_, a.key, b.key);
      });
    }
    out_.append_neutral("{");
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) write_separator(*style_.item_separator);
      write_line_break();
      write_key(entries[i].key);
      write_separator(*style_.key_separator);
      write(entries[i].value);
    }
    --depth_;
    write_line_break();
    out_.append_neutral("}");
  }

  void write_key(const Value& key) {
    if (key.is_text()) return write_string(*key.text);
    if (!key.is_number() && !key.is(Kind::kNone)) {
      fail("a {} cannot be a key in JSON", type_name(key));
    }
    out_.append_neutral("\"");
    write(key);
    out_.append_neutral("\"");
  }

  void write_string(const Text& text) {
    const bool from_user = text.has_user_bytes();
    out_.append("\"", from_user);
    size_t plain_begin = 0;
    for (size_t at = 0; at < text.bytes.size();) {
      const auto byte = static_cast<unsigned char>(text.bytes[at]);
      const bool is_plain =
          byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x7F || !style_.ensure_ascii);
      if (is_plain) {
        ++at;
        continue;
      }
      const Character character = first_character(text.bytes.substr(at));
      out_.append(text, plain_begin, at);
      out_.append(escape(character.code), is_from_user(text, at));
      at += character.len;
      plain_begin = at;
    }
    out_.append(text, plain_begin, text.bytes.size());
    out_.append("\"", from_user);
  }

  static std::string escape(char32_t code) {
    switch (code) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\b':
        return "\\b";
      case '\f':
        return "\\f";
      default:
        break;
    }
    const auto number = static_cast<uint32_t>(code);
    if (number < 0x10000) return fmt::format("\\u{:04x}", number);
    const uint32_t rest = number - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  Workspace& workspace_;
  const JsonStyle& style_;
  TextBuilder out_;
  int32_t depth_ = 0;
};

}  // namespace

const Text* dump_json(Workspace& workspace, const Value& value, const JsonStyle& style) {
  JsonWriter writer(workspace, style);
  writer.write(value);
  return writer.finish();
}

const Text* escape_html(Workspace& workspace, const Text& text) {
  if (text.is_markup) return &text;
  workspace.tick_bytes(text.bytes.size());
  TextBuilder out(workspace);
  size_t plain_begin = 0;
  for (size_t at = 0; at < text.bytes.size(); ++at) {
    std::string_view escape;
    switch (text.bytes[at]) {
      case '&':
        escape = "&amp;";
        break;
      case '<':
        escape = "&lt;";
        break;
      case '>':
        escape = "&gt;";
        break;
      case '\'':
        escape = "&#39;";
        break;
      case '"':
        escape = "&#34;";
        break;
      default:
        continue;
    }
    out.append(text, plain_begin, at);
    out.append(escape, is_from_user(text, at));
    plain_begin = at + 1;
  }
  out.append(text, plain_begin, text.bytes.size());
  return with_markup(workspace, *out.finish(workspace), true);
}

}  // namespace pagoda::model::jinja
