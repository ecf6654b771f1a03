// The methods of str (methods.h).
#include <algorithm>
#include <array>

#include "model/template/callables.h"
#include "model/template/format.h"
#include "model/template/methods.h"
#include "model/template/operations.h"
#include "model/template/printing.h"
#include "model/template/text_functions.h"

namespace pagoda::model::jinja {

namespace {

const Text* optional_text(const Value& value, std::string_view method) {
  if (!is_given(value)) return nullptr;
  require_defined(value);
  if (!value.is_text()) fail("{}() takes a text, not a {}", method, type_name(value));
  return value.text;
}

const Text& required_text(const Value& value, std::string_view method) {
  require_defined(value);
  if (!value.is_text()) fail("{}() takes a text, not a {}", method, type_name(value));
  return *value.text;
}

// Of what an escaped text makes, the parts are escaped too.
Value as_markup_of(Workspace& workspace, const Value& self, const Text* text) {
  return text_value(with_markup(workspace, *text, self.text->is_markup));
}

Value list_of(Workspace& workspace, const Value& self, const Texts& parts) {
  Values items(workspace);
  items.reserve(parts.size());
  for (const Text* part : parts) items.push_back(as_markup_of(workspace, self, part));
  return make_list(workspace, items);
}

template <Side side>
Value do_strip(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [chars] = bind_positional<1>("strip", arguments, {"chars"});
  return text_value(strip(workspace, *self.text, optional_text(chars, "strip"), side));
}

template <const Text* (*map)(Workspace&, const Text&)>
Value do_map(Workspace& workspace, const Value& self, const Arguments& arguments) {
  bind<0>("the method", arguments, {});
  return text_value(map(workspace, *self.text));
}

template <Texts (*split_function)(Workspace&, const Text&, const Text*, int64_t)>
Value do_split(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [separator, maximum] = bind<2>("split", arguments, {"sep", "maxsplit"});
  const int64_t n = maximum.is_missing() ? -1 : as_index(maximum, "maxsplit");
  return list_of(workspace, self,
                 split_function(workspace, *self.text, optional_text(separator, "split"), n));
}

Value do_splitlines(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [keep] = bind<1>("splitlines", arguments, {"keepends"});
  const bool keep_ends = !keep.is_missing() && as_index(keep, "keepends") != 0;
  return list_of(workspace, self, split_lines(workspace, *self.text, keep_ends));
}

// The three parts of (r)partition: before, at and after a separator.
template <bool from_right>
Value do_partition(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [separator] = bind_positional<1>("partition", arguments, {"sep"}, 1);
  const std::string_view mark = required_text(separator, "partition").bytes;
  if (mark.empty()) fail("partition() needs a separator that is not empty");
  const Text& text = *self.text;
  workspace.tick_bytes(text.bytes.size());
  const size_t found = from_right ? find_last(workspace, text.bytes, mark) : find(text.bytes, mark);
  const size_t end = text.bytes.size();
  size_t begin_mark = found;
  size_t end_mark = found + mark.size();
  if (found == std::string_view::npos) begin_mark = end_mark = from_right ? 0 : end;
  const Value parts[] = {
      as_markup_of(workspace, self, sub_text(workspace, text, 0, begin_mark)),
      as_markup_of(workspace, self,
                   found == std::string_view::npos ? sub_text(workspace, text, begin_mark, end_mark)
                                                   : separator.text),
      as_markup_of(workspace, self, sub_text(workspace, text, end_mark, end))};
  return make_tuple(workspace, parts);
}

// The bytes that start and stop (in characters) leave of a text; none if there are no such places.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool exists = true;
};
Window window(Workspace& workspace, const Text& text, const Value& start, const Value& stop) {
  const auto size = static_cast<int64_t>(length(workspace, text));
  const auto given = [](const Value& value) { return value.is_missing() ? none() : value; };
  const SliceBounds bounds = slice_bounds(size, given(start), given(stop), none());
  // A start past the end is nowhere, not even before an empty text.
  const bool past_end = start.is(Kind::kInt) && start.integer > size;
  Window result;
  result.exists = !past_end && bounds.start <= bounds.stop;
  result.begin = offset_of(workspace, text, static_cast<size_t>(bounds.start));
  result.end = std::max(result.begin, offset_of(workspace, text, static_cast<size_t>(bounds.stop)));
  return result;
}

bool matches(std::string_view text, std::string_view affix, bool at_start) {
  return at_start ? text.starts_with(affix) : text.ends_with(affix);
}

template <bool at_start>
Value do_matches(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const std::string_view name = at_start ? "startswith" : "endswith";
  const auto [affix, start, stop] =
      bind_positional<3>(name, arguments, {"affix", "start", "end"}, 1);
  const Window part = window(workspace, *self.text, start, stop);
  const std::string_view text = self.text->bytes.substr(part.begin, part.end - part.begin);
  if (!affix.is(Kind::kTuple)) {
    const std::string_view wanted = required_text(affix, name).bytes;
    workspace.tick_bytes(wanted.size());
    return boolean(part.exists && matches(text, wanted, at_start));
  }
  for (const Value& each : affix.sequence->items) {
    workspace.tick();
    const std::string_view wanted = required_text(each, name).bytes;
    workspace.tick_bytes(wanted.size());
    if (part.exists && matches(text, wanted, at_start)) return boolean(true);
  }
  return boolean(false);
}

// The character at which a part begins, -1 if it does not occur.
int64_t find_part(Workspace& workspace, const Text& text, const Arguments& arguments,
                  std::string_view name, bool from_right) {
  const auto [part, start, stop] = bind_positional<3>(name, arguments, {"sub", "start", "end"}, 1);
  const std::string_view wanted = required_text(part, name).bytes;
  workspace.tick_bytes(2 * text.bytes.size());
  const Window where = window(workspace, text, start, stop);
  if (!where.exists) return -1;
  const std::string_view searched = text.bytes.substr(where.begin, where.end - where.begin);
  const size_t found = from_right ? find_last(workspace, searched, wanted) : find(searched, wanted);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(count_characters(text.bytes.substr(0, where.begin + found)));
}

template <bool from_right, bool must_occur>
Value do_find(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const std::string_view name = must_occur ? "index" : "find";
  const int64_t at = find_part(workspace, *self.text, arguments, name, from_right);
  if (at < 0 && must_occur) fail("index() does not find the text");
  return integer(at);
}

Value do_count(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [part, start, stop] =
      bind_positional<3>("count", arguments, {"sub", "start", "end"}, 1);
  const std::string_view wanted = required_text(part, "count").bytes;
  const Text& text = *self.text;
  workspace.tick_bytes(2 * text.bytes.size());
  const Window where = window(workspace, text, start, stop);
  if (!where.exists) return integer(0);
  const std::string_view searched = text.bytes.substr(where.begin, where.end - where.begin);
  if (wanted.empty()) return integer(static_cast<int64_t>(count_characters(searched)) + 1);
  int64_t count = 0;
  for (size_t at = find(searched, wanted); at != std::string_view::npos;
       at = find(searched, wanted, at + wanted.size())) {
    workspace.tick_bytes(32);  // what a search costs however near it finds
    ++count;
  }
  return integer(count);
}

Value do_replace(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [from, to, count] =
      bind_positional<3>("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t n = count.is_missing() ? -1 : as_index(count, "count");
  const Text* new_part = &required_text(to, "replace");
  if (self.text->is_markup) new_part = escape_html(workspace, *new_part);
  return as_markup_of(workspace, self,
                      replace(workspace, *self.text, required_text(from, "replace"), *new_part, n));
}

Value do_join(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [iterable] = bind_positional<1>("join", arguments, {"iterable"}, 1);
  Texts parts(workspace);
  for (const Value& item : items_of(workspace, iterable)) {
    const Text* part = &required_text(item, "join");
    parts.push_back(self.text->is_markup ? escape_html(workspace, *part) : part);
  }
  return as_markup_of(workspace, self, join(workspace, *self.text, parts));
}

template <bool is_prefix>
Value do_remove(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [affix] = bind_positional<1>("remove", arguments, {"affix"}, 1);
  const std::string_view part = required_text(affix, "removeprefix and removesuffix").bytes;
  const Text& text = *self.text;
  workspace.tick_bytes(part.size());
  if (!matches(text.bytes, part, is_prefix)) return self;
  const size_t size = text.bytes.size();
  return text_value(is_prefix ? sub_text(workspace, text, part.size(), size)
                              : sub_text(workspace, text, 0, size - part.size()));
}

template <Side side>
Value do_pad(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [width, fill] = bind_positional<2>("the method", arguments, {"width", "fillchar"}, 1);
  const Text blank{.bytes = " ", .is_ascii = true};
  const Text& filler = fill.is_missing() ? blank : required_text(fill, "ljust, rjust and center");
  if (length(workspace, filler) != 1) fail("a field is filled with one character");
  return text_value(pad(workspace, *self.text, as_index(width, "width"), filler, side));
}

Value do_zfill(Workspace& workspace, const Value& self, const Arguments& arguments) {
  const auto [width] = bind_positional<1>("zfill", arguments, {"width"}, 1);
  return as_markup_of(workspace, self, fill_zeros(workspace, *self.text, as_index(width, "width")));
}

Value do_format(Workspace& workspace, const Value& self, const Arguments& arguments) {
  return as_markup_of(workspace, self, format_braces(workspace, *self.text, arguments).text);
}

template <bool (*test)(char32_t)>
Value do_all(Workspace& workspace, const Value& self, const Arguments& arguments) {
  bind<0>("the method", arguments, {});
  return boolean(all_characters(workspace, *self.text, test));
}

template <bool (*test)(Workspace&, const Text&)>
Value do_test(Workspace& workspace, const Value& self, const Arguments& arguments) {
  bind<0>("the method", arguments, {});
  return boolean(test(workspace, *self.text));
}

bool is_alphanumeric(char32_t code) {
  return is_alpha(code) || is_decimal(code) || is_digit(code) || is_numeric(code);
}
bool is_ascii_text(Workspace& workspace, const Text& text) {
  workspace.tick_bytes(text.bytes.size());
  return text.is_ascii || is_ascii(text.bytes);
}
bool is_printable_text(Workspace& workspace, const Text& text) {
  return text.bytes.empty() || all_characters(workspace, text, is_printable);
}
bool is_title_text(Workspace& workspace, const Text& text) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  bool after_cased = false;
  bool found = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    const bool is_large = is_upper(character.code) || is_title(character.code);
    const bool is_small = is_lower(character.code);
    if ((is_large && after_cased) || (is_small && !after_cased)) return false;
    after_cased = is_large || is_small;
    found = found || after_cased;
    at += character.len;
  }
  return found;
}
bool is_identifier(Workspace& workspace, const Text& text) {
  return !text.bytes.empty() && is_identifier_begin(first_character(text.bytes).code) &&
         all_characters(workspace, text, is_identifier_part);
}

Value unsupported(Workspace&, const Value&, const Arguments&) {
  fail("this method of str is not supported in templates");
}

constexpr std::array kMethods = {
    MethodEntry{"capitalize", do_map<capitalize>},
    MethodEntry{"casefold", do_map<fold_case>},
    MethodEntry{"center", do_pad<Side::kBoth>},
    MethodEntry{"count", do_count},
    MethodEntry{"encode", unsupported},
    MethodEntry{"endswith", do_matches<false>},
    MethodEntry{"expandtabs", unsupported},
    MethodEntry{"find", do_find<false, false>},
    MethodEntry{"format", do_format},
    MethodEntry{"format_map", unsupported},
    MethodEntry{"index", do_find<false, true>},
    MethodEntry{"isalnum", do_all<is_alphanumeric>},
    MethodEntry{"isalpha", do_all<is_alpha>},
    MethodEntry{"isascii", do_test<is_ascii_text>},
    MethodEntry{"isdecimal", do_all<is_decimal>},
    MethodEntry{"isdigit", do_all<is_digit>},
    MethodEntry{"isidentifier", do_test<is_identifier>},
    MethodEntry{"islower", do_test<is_lower_text>},
    MethodEntry{"isnumeric", do_all<is_numeric>},
    MethodEntry{"isprintable", do_test<is_printable_text>},
    MethodEntry{"isspace", do_all<is_space>},
    MethodEntry{"istitle", do_test<is_title_text>},
    MethodEntry{"isupper", do_test<is_upper_text>},
    MethodEntry{"join", do_join},
    MethodEntry{"ljust", do_pad<Side::kLeft>},
    MethodEntry{"lower", do_map<lower>},
    MethodEntry{"lstrip", do_strip<Side::kLeft>},
    MethodEntry{"maketrans", unsupported},
    MethodEntry{"partition", do_partition<false>},
    MethodEntry{"removeprefix", do_remove<true>},
    MethodEntry{"removesuffix", do_remove<false>},
    MethodEntry{"replace", do_replace},
    MethodEntry{"rfind", do_find<true, false>},
    MethodEntry{"rindex", do_find<true, true>},
    MethodEntry{"rjust", do_pad<Side::kRight>},
    MethodEntry{"rpartition", do_partition<true>},
    MethodEntry{"rsplit", do_split<split_right>},
    MethodEntry{"rstrip", do_strip<Side::kRight>},
    MethodEntry{"split", do_split<split>},
    MethodEntry{"splitlines", do_splitlines},
    MethodEntry{"startswith", do_matches<true>},
    MethodEntry{"strip", do_strip<Side::kBoth>},
    MethodEntry{"swapcase", do_map<swap_case>},
    MethodEntry{"title", do_map<title>},
    MethodEntry{"translate", unsupported},
    MethodEntry{"upper", do_map<upper>},
    MethodEntry{"zfill", do_zfill},
};

}  // namespace

const MethodEntry* find_text_method(std::string_view name) { return find_entry(kMethods, name); }

}  // namespace pagoda::model::jinja
