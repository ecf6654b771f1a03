// Filters of texts and numbers (filters.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "model/template/callables.h"
#include "model/template/filters.h"
#include "model/template/format.h"
#include "model/template/literals.h"
#include "model/template/operations.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

// A text argument that may be left out or none.
const Text* optional_text(const Value& value, std::string_view what) {
  if (!is_given(value)) return nullptr;
  require_defined(value);
  if (!value.is_text()) fail("{} must be a text, not a {}", what, type_name(value));
  return value.text;
}

const Text& required_text(const Value& value, std::string_view filter) {
  require_defined(value);
  if (!value.is_text()) fail("the filter {} works on a text, not a {}", filter, type_name(value));
  return *value.text;
}

Value do_trim(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [chars] = bind<1>("trim", arguments, {"chars"});
  return text_value(
      strip(workspace, *to_text(workspace, value), optional_text(chars, "chars"), Side::kBoth));
}

Value do_replace(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [from, to, count] = bind<3>("replace", arguments, {"old", "new", "count"}, 2);
  const Text* replaced =
      replace(workspace, *to_text(workspace, value), *to_text(workspace, from),
              *to_text(workspace, to), is_given(count) ? as_index(count, "count") : -1);
  return text_value(with_markup(workspace, *replaced, false));
}

template <const Text* (*map)(Workspace&, const Text&)>
Value map_filter(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("the filter", arguments, {});
  return text_value(map(workspace, *to_text(workspace, value)));
}

Value do_string(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("string", arguments, {});
  return text_value(to_text(workspace, value));
}

Value do_center(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [width] = bind<1>("center", arguments, {"width"});
  const Text& text = *to_text(workspace, value);
  const Text blank{.bytes = " ", .from_user = false, .is_ascii = true};
  return text_value(
      pad(workspace, text, width.is_missing() ? 80 : as_index(width, "width"), blank, Side::kBoth));
}

Value do_indent(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [width, first, blank] = bind<3>("indent", arguments, {"width", "first", "blank"});
  const Text& text = required_text(value, "indent");
  TextBuilder with_newline(workspace);
  with_newline.append(text);
  with_newline.append("\n", with_newline.last_from_user());
  const Text* indentation = nullptr;
  if (width.is_text()) {
    indentation = width.text;
  } else {
    const int64_t n = width.is_missing() ? 4 : as_index(width, "width");
    TextBuilder blanks(workspace);
    const Text one{.bytes = " ", .is_ascii = true};
    blanks.append_repeated(one, static_cast<size_t>(std::max<int64_t>(n, 0)));
    indentation = blanks.finish(workspace);
  }
  TextBuilder out(workspace);
  if (flag(first)) out.append(*indentation);
  const Text& broken = *with_newline.finish(workspace);
  const auto lines = split_lines(workspace, broken, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      // As the break that it stands for.
      const std::string_view before = lines[i - 1]->bytes;
      const auto at = static_cast<size_t>(before.data() + before.size() - broken.bytes.data());
      out.append("\n", is_from_user(broken, at));
      if (flag(blank) || !lines[i]->bytes.empty()) out.append(*indentation);
    }
    out.append(*lines[i]);
  }
  return text_value(with_markup(workspace, *out.finish(workspace), text.is_markup));
}

Value do_truncate(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [length_value, killwords, end_value, leeway_value] =
      bind<4>("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text dots{.bytes = "...", .is_ascii = true};
  const Text* given_end = optional_text(end_value, "end");
  const Text& end = given_end == nullptr ? dots : *given_end;
  const int64_t max_length = length_value.is_missing() ? 255 : as_index(length_value, "length");
  const int64_t leeway = is_given(leeway_value) ? as_index(leeway_value, "leeway") : 5;
  const auto end_length = static_cast<int64_t>(length(workspace, end));
  if (max_length < end_length) fail("truncate() needs a length of at least {}", end_length);
  if (leeway < 0) fail("truncate() needs a leeway of at least 0");
  // What fits is given back whatever it is.
  const auto size = length(workspace, value);
  if (size && *size - leeway <= max_length) return value;
  const Text& text = required_text(value, "truncate");
  const Text* cut = sub_text(
      workspace, text, 0, offset_of(workspace, text, static_cast<size_t>(max_length - end_length)));
  if (!flag(killwords)) {
    workspace.tick_bytes(cut->bytes.size());
    const size_t blank = cut->bytes.rfind(' ');
    if (blank != std::string_view::npos) cut = sub_text(workspace, *cut, 0, blank);
  }
  TextBuilder out(workspace);
  out.append(*cut);
  out.append(end);
  return text_value(out.finish(workspace));
}

Value do_wordcount(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("wordcount", arguments, {});
  const Text& text = *to_text(workspace, value);
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  int64_t n_words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    const bool is_part = is_word(character.code);
    if (is_part && !in_word) ++n_words;
    in_word = is_part;
    at += character.len;
  }
  return integer(n_words);
}

Value do_escape(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("escape", arguments, {});
  return text_value(escape_html(workspace, *to_text(workspace, value)));
}

Value do_forceescape(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("forceescape", arguments, {});
  const Text* plain = with_markup(workspace, *to_text(workspace, value), false);
  return text_value(escape_html(workspace, *plain));
}

Value do_safe(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("safe", arguments, {});
  return text_value(with_markup(workspace, *to_text(workspace, value), true));
}

Value do_format(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const Text& format = *to_text(workspace, value);
  if (!arguments.named.empty()) {
    if (!arguments.positional.empty()) fail("format() takes either positions or names");
    Dict* dict = workspace.make<Dict>();
    for (const Argument& argument : arguments.named) {
      const Value name = make_string(workspace, argument.name, argument.is_name_from_user);
      set(workspace, *dict, name, argument.value);
    }
    return format_percent(workspace, format, dict_value(dict));
  }
  return format_percent(workspace, format, make_tuple(workspace, arguments.positional));
}

Value do_tojson(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [ensure_ascii, indent, separators, sort_keys] =
      bind<4>("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(ensure_ascii);
  style.sort_keys = flag(sort_keys);
  if (is_given(indent)) {
    if (indent.is_text()) {
      style.indent = indent.text;
    } else {
      const Text blank{.bytes = " ", .is_ascii = true};
      TextBuilder blanks(workspace);
      const int64_t n = std::max<int64_t>(as_index(indent, "indent"), 0);
      blanks.append_repeated(blank, static_cast<size_t>(n));
      style.indent = blanks.finish(workspace);
    }
  }
  style.item_separator = make_text(workspace, style.indent != nullptr ? "," : ", ");
  style.key_separator = make_text(workspace, ": ");
  if (is_given(separators)) {
    const Values pair = items_of(workspace, separators);
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text()) {
      fail("tojson() needs two texts as separators");
    }
    style.item_separator = pair[0].text;
    style.key_separator = pair[1].text;
  }
  return text_value(dump_json(workspace, value, style));
}

void append_quoted_url(Workspace& workspace, TextBuilder& out, const Text& text, bool in_query) {
  workspace.tick(static_cast<int64_t>(text.bytes.size()));
  constexpr std::string_view kPlain = "_.-~";
  for (size_t at = 0; at < text.bytes.size(); ++at) {
    const char c = text.bytes[at];
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || kPlain.find(c) != std::string_view::npos ||
                          (c == '/' && !in_query);
    const bool from_user = is_from_user(text, at);
    if (is_plain) {
      out.append(std::string_view(&c, 1), from_user);
    } else if (c == ' ' && in_query) {
      out.append("+", from_user);
    } else {
      out.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), from_user);
    }
  }
}

Value do_urlencode(Workspace& workspace, const Value& value, const Arguments& arguments) {
  bind<0>("urlencode", arguments, {});
  TextBuilder out(workspace);
  if (value.is_text() || !Iteration::accepts(value)) {
    append_quoted_url(workspace, out, *to_text(workspace, value), false);
    return text_value(out.finish(workspace));
  }
  Value pairs = value;
  if (value.is(Kind::kDict)) {
    pairs = {.kind = Kind::kDictView,
             .view = workspace.make<DictView>(DictView{value.dict, DictView::Part::kItems})};
  }
  bool first = true;
  for (const Value& pair : items_of(workspace, pairs)) {
    const Values both = items_of(workspace, pair);
    if (both.size() != 2) fail("urlencode() needs pairs");
    if (!std::exchange(first, false)) out.append("&", false);
    append_quoted_url(workspace, out, *to_text(workspace, both[0]), true);
    out.append("=", false);
    append_quoted_url(workspace, out, *to_text(workspace, both[1]), true);
  }
  return text_value(out.finish(workspace));
}

int64_t to_integer(double number) {
  if (!(number >= -0x1p63 && number < 0x1p63)) fail("an integer does not fit into 64 bits");
  return static_cast<int64_t>(number);
}

Value do_int(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [otherwise, base] = bind<2>("int", arguments, {"default", "base"});
  const Value fallback = otherwise.is_missing() ? integer(0) : otherwise;
  require_defined(value);
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.real)) fail("infinity is no integer");
    return std::isnan(value.real) ? fallback : integer(to_integer(value.real));
  }
  if (value.is(Kind::kBool)) return integer(value.boolean ? 1 : 0);
  if (value.is_integer()) return value;
  if (!value.is_text()) return fallback;
  workspace.tick(static_cast<int64_t>(value.text->bytes.size() / 8));
  const bool has_base = base.is_missing() || base.is(Kind::kInt) || base.is(Kind::kBool);
  if (has_base) {
    const int64_t radix = base.is_missing() ? 10 : as_index(base, "base");
    if (const auto number = parse_int(value.text->bytes, radix)) return integer(*number);
  }
  const auto number = parse_float(value.text->bytes);
  if (!number || std::isnan(*number) || std::isinf(*number)) return fallback;
  return integer(to_integer(*number));
}

Value do_float(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [otherwise] = bind<1>("float", arguments, {"default"});
  const Value fallback = otherwise.is_missing() ? real(0) : otherwise;
  require_defined(value);
  if (value.is_number()) return real(as_real(value));
  if (!value.is_text()) return fallback;
  workspace.tick(static_cast<int64_t>(value.text->bytes.size() / 8));
  const auto number = parse_float(value.text->bytes);
  return number ? real(*number) : fallback;
}

Value do_abs(Workspace&, const Value& value, const Arguments& arguments) {
  bind<0>("abs", arguments, {});
  require_defined(value);
  if (!value.is_number()) fail("a {} has no absolute value", type_name(value));
  if (value.is(Kind::kFloat)) return real(std::fabs(value.real));
  const bool is_negative = value.is(Kind::kInt) && value.integer < 0;
  return is_negative ? negate(value) : plus(value);
}

// To `digits` after the point (before it, if negative), halves to the even digit.
Value round_common(const Value& value, int64_t digits) {
  if (value.is(Kind::kFloat)) {
    if (!std::isfinite(value.real)) return value;
    if (digits > 350) return value;
    if (digits < -310) return real(std::copysign(0.0, value.real));
    if (digits >= 0) {
      char buffer[800];
      std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value.real);
      return real(std::strtod(buffer, nullptr));
    }
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return real(std::nearbyint(value.real / scale) * scale);
  }
  if (digits >= 0) return plus(value);
  if (digits < -18) return integer(0);
  const int64_t number = plus(value).integer;
  int64_t scale = 1;
  for (int64_t i = digits; i < 0; ++i) scale *= 10;
  int64_t rest = number % scale;
  if (rest < 0) rest += scale;
  const __int128 down = static_cast<__int128>(number) - rest;
  const bool is_odd = (down / scale) % 2 != 0;
  const bool goes_up = rest > scale / 2 || (rest == scale / 2 && is_odd);
  const __int128 rounded = goes_up ? down + scale : down;
  if (rounded > INT64_MAX || rounded < INT64_MIN) fail("an integer does not fit into 64 bits");
  return integer(static_cast<int64_t>(rounded));
}

Value do_round(Workspace& workspace, const Value& value, const Arguments& arguments) {
  const auto [precision, method] = bind<2>("round", arguments, {"precision", "method"});
  const std::string_view how = method.is_missing() ? "common" : to_text(workspace, method)->bytes;
  if (how != "common" && how != "ceil" && how != "floor") {
    fail("round() knows the methods common, ceil and floor");
  }
  require_defined(value);
  if (!value.is_number()) fail("a {} cannot be rounded", type_name(value));
  if (value.is(Kind::kBigInt)) fail("an integer does not fit into 64 bits");
  if (how == "common" && precision.is(Kind::kNone)) {
    if (!value.is(Kind::kFloat)) return plus(value);
    if (!std::isfinite(value.real)) fail("infinity is no integer");
    return integer(to_integer(std::nearbyint(value.real)));
  }
  const int64_t digits = precision.is_missing() ? 0 : as_index(precision, "precision");
  workspace.tick(32);  // printing a number with all its digits, and reading it
  if (how == "common") return round_common(value, digits);
  const Value scale = calculate(workspace, Operator::kPower, integer(10), integer(digits));
  const double scaled = as_real(calculate(workspace, Operator::kMultiply, value, scale));
  const double whole = how == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (!std::isfinite(whole)) fail("infinity is no integer");
  // Python's ceil and floor are integers, which have no negative zero.
  return real((whole == 0 ? 0.0 : whole) / as_real(scale));
}

constexpr std::array kFilters = {
    FilterEntry{"abs", do_abs},
    FilterEntry{"capitalize", map_filter<capitalize>},
    FilterEntry{"center", do_center},
    FilterEntry{"e", do_escape},
    FilterEntry{"escape", do_escape},
    FilterEntry{"float", do_float},
    FilterEntry{"forceescape", do_forceescape},
    FilterEntry{"format", do_format},
    FilterEntry{"indent", do_indent},
    FilterEntry{"int", do_int},
    FilterEntry{"lower", map_filter<lower>},
    FilterEntry{"replace", do_replace},
    FilterEntry{"round", do_round},
    FilterEntry{"safe", do_safe},
    FilterEntry{"string", do_string},
    FilterEntry{"title", map_filter<title_words>},
    FilterEntry{"tojson", do_tojson},
    FilterEntry{"trim", do_trim},
    FilterEntry{"truncate", do_truncate},
    FilterEntry{"upper", map_filter<upper>},
    FilterEntry{"urlencode", do_urlencode},
    FilterEntry{"wordcount", do_wordcount},
};

}  // namespace

const FilterEntry* find_text_filter(std::string_view name) { return find_entry(kFilters, name); }

}  // namespace pagoda::model::jinja
