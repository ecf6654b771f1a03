#include "model/template/text_functions.h"

#include <algorithm>

namespace pagoda::model::jinja {

namespace {

bool is_stripped(char32_t code, const Text* chars) {
  if (chars == nullptr) return is_space(code);
  std::string character;
  append_utf8(character, code);
  return find(chars->bytes, character) != std::string_view::npos;
}

// Applies a mapping of bytes or, where it takes more, of the whole text.
const Text* map_text(Workspace& workspace, const Text& text, std::string (*map)(std::string_view)) {
  workspace.tick_bytes(4 * text.bytes.size());
  TextBuilder out(workspace);
  if (text.is_ascii) {
    for_each_stretch(text, [&](size_t begin, size_t end, bool from_user) {
      out.append(map(text.bytes.substr(begin, end - begin)), from_user);
    });
  } else {
    // The length may change and a letter may depend on its neighbours: in doubt it is a client's.
    workspace.check_room(3 * text.bytes.size());
    out.append(map(text.bytes), text.has_user_bytes());
  }
  return with_markup(workspace, *out.finish(workspace), text.is_markup);
}

const Text* map_characters(Workspace& workspace, const Text& text,
                           std::string (*map)(std::string_view text, size_t at, bool after_cased)) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 2));
  TextBuilder out(workspace);
  bool after_cased = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    out.append(map(text.bytes, at, after_cased), is_from_user(text, at));
    after_cased = is_upper(character.code) || is_lower(character.code) || is_title(character.code);
    at += character.len;
  }
  return with_markup(workspace, *out.finish(workspace), text.is_markup);
}

bool begins_word(char32_t code) {
  return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

const Text* part(Workspace& workspace, const Text& text, size_t begin, size_t end) {
  workspace.tick();
  return sub_text(workspace, text, begin, end);
}

size_t skip(const Text& text, size_t at, bool over_spaces) {
  while (at < text.bytes.size()) {
    const Character character = first_character(text.bytes.substr(at));
    if (is_space(character.code) != over_spaces) break;
    at += character.len;
  }
  return at;
}

size_t skip_back(const Text& text, size_t at, bool over_spaces) {
  while (at > 0) {
    const size_t begin = last_character_begin(text.bytes.substr(0, at));
    if (is_space(first_character(text.bytes.substr(begin)).code) != over_spaces) break;
    at = begin;
  }
  return at;
}

Texts split_at_spaces(Workspace& workspace, const Text& text, int64_t max_splits) {
  Texts parts(workspace);
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  size_t at = skip(text, 0, true);
  while (at < text.bytes.size()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(part(workspace, text, at, text.bytes.size()));
      return parts;
    }
    const size_t end = skip(text, at, false);
    parts.push_back(part(workspace, text, at, end));
    at = skip(text, end, true);
  }
  return parts;
}

Texts split_right_at_spaces(Workspace& workspace, const Text& text, int64_t max_splits) {
  Texts parts(workspace);
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  size_t at = skip_back(text, text.bytes.size(), true);
  while (at > 0) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(part(workspace, text, 0, at));
      break;
    }
    const size_t begin = skip_back(text, at, false);
    parts.push_back(part(workspace, text, begin, at));
    at = skip_back(text, begin, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

const Text* strip(Workspace& workspace, const Text& text, const Text* chars, Side side) {
  // Each character that is looked at costs a search among those to strip.
  const size_t n_chars = chars == nullptr ? 0 : chars->bytes.size();
  const auto strips = [&](std::string_view from) {
    workspace.tick_bytes(8 + n_chars);
    return is_stripped(first_character(from).code, chars);
  };
  size_t begin = 0;
  size_t end = text.bytes.size();
  while (side != Side::kRight && begin < end) {
    const std::string_view rest = text.bytes.substr(begin, end - begin);
    if (!strips(rest)) break;
    begin += first_character(rest).len;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t last = last_character_begin(text.bytes.substr(0, end));
    if (!strips(text.bytes.substr(last))) break;
    end = last;
  }
  return sub_text(workspace, text, begin, end);
}

const Text* replace(Workspace& workspace, const Text& text, const Text& old_part,
                    const Text& new_part, int64_t count) {
  workspace.tick_bytes(text.bytes.size());
  TextBuilder out(workspace);
  size_t at = 0;
  size_t search_from = 0;
  for (; count != 0; count -= count > 0 ? 1 : 0) {
    const size_t found = find(text.bytes, old_part.bytes, search_from);
    if (found == std::string_view::npos) break;
    workspace.tick();
    out.append(text, at, found);
    out.append(new_part);
    at = found + old_part.bytes.size();
    search_from = at;
    if (old_part.bytes.empty()) {
      // Between all characters.
      if (at >= text.bytes.size()) break;
      search_from = at + first_character(text.bytes.substr(at)).len;
    }
  }
  if (at == 0 && out.size() == 0) return &text;
  out.append(text, at, text.bytes.size());
  return out.finish(workspace);
}

const Text* upper(Workspace& workspace, const Text& text) {
  return map_text(workspace, text, upper);
}
const Text* lower(Workspace& workspace, const Text& text) {
  return map_text(workspace, text, lower);
}
const Text* fold_case(Workspace& workspace, const Text& text) {
  return map_text(workspace, text, case_fold);
}

const Text* swap_case(Workspace& workspace, const Text& text) {
  return map_characters(workspace, text, [](std::string_view whole, size_t at, bool) {
    const Character character = first_character(whole.substr(at));
    if (is_upper(character.code)) return lower_at(whole, at);
    const std::string_view bytes = whole.substr(at, character.len);
    return is_lower(character.code) ? upper(bytes) : std::string(bytes);
  });
}

const Text* title(Workspace& workspace, const Text& text) {
  return map_characters(workspace, text, [](std::string_view whole, size_t at, bool after_cased) {
    if (after_cased) return lower_at(whole, at);
    return title_first(whole.substr(at, first_character(whole.substr(at)).len));
  });
}

const Text* capitalize(Workspace& workspace, const Text& text) {
  if (text.bytes.empty()) return &text;
  const size_t len = first_character(text.bytes).len;
  TextBuilder out(workspace);
  out.append(title_first(text.bytes.substr(0, len)), is_from_user(text, 0));
  out.append(*lower(workspace, *sub_text(workspace, text, len, text.bytes.size())));
  return with_markup(workspace, *out.finish(workspace), text.is_markup);
}

const Text* title_words(Workspace& workspace, const Text& text) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  TextBuilder out(workspace);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character first = first_character(text.bytes.substr(at));
    const bool is_border = begins_word(first.code);
    size_t end = at + first.len;
    while (end < text.bytes.size()) {
      const Character character = first_character(text.bytes.substr(end));
      if (begins_word(character.code) != is_border) break;
      end += character.len;
    }
    out.append(upper(text.bytes.substr(at, first.len)), is_from_user(text, at));
    out.append(*lower(workspace, *sub_text(workspace, text, at + first.len, end)));
    at = end;
  }
  return out.finish(workspace);
}

Texts split(Workspace& workspace, const Text& text, const Text* separator, int64_t max_splits) {
  if (separator == nullptr) return split_at_spaces(workspace, text, max_splits);
  workspace.tick_bytes(text.bytes.size());
  if (separator->bytes.empty()) fail("split() needs a separator that is not empty");
  Texts parts(workspace);
  size_t at = 0;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t found = find(text.bytes, separator->bytes, at);
    if (found == std::string_view::npos) break;
    parts.push_back(part(workspace, text, at, found));
    at = found + separator->bytes.size();
  }
  parts.push_back(part(workspace, text, at, text.bytes.size()));
  return parts;
}

Texts split_right(Workspace& workspace, const Text& text, const Text* separator,
                  int64_t max_splits) {
  if (separator == nullptr) return split_right_at_spaces(workspace, text, max_splits);
  const std::string_view mark = separator->bytes;
  if (mark.empty()) fail("rsplit() needs a separator that is not empty");
  Texts parts(workspace);
  size_t end = text.bytes.size();
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t found = find_last(workspace, text.bytes.substr(0, end), mark);
    if (found == std::string_view::npos) break;
    parts.push_back(part(workspace, text, found + mark.size(), end));
    end = found;
  }
  parts.push_back(part(workspace, text, 0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Texts split_lines(Workspace& workspace, const Text& text, bool keep_ends) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  Texts lines(workspace);
  size_t begin = 0;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    const size_t end = at;
    at += character.len;
    if (!is_line_break(character.code)) continue;
    if (character.code == '\r' && at < text.bytes.size() && text.bytes[at] == '\n') ++at;
    lines.push_back(part(workspace, text, begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < text.bytes.size()) lines.push_back(part(workspace, text, begin, text.bytes.size()));
  return lines;
}

const Text* join(Workspace& workspace, const Text& separator, const Texts& parts) {
  TextBuilder out(workspace);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(*parts[i]);
  }
  return out.finish(workspace);
}

const Text* pad(Workspace& workspace, const Text& text, int64_t width, const Text& fill,
                Side side) {
  const auto len = static_cast<int64_t>(length(workspace, text));
  if (width <= len) return &text;
  const int64_t missing = width - len;
  int64_t left = 0;
  if (side == Side::kRight) left = missing;
  // Python puts the odd blank left of a text in the middle if the width is odd.
  if (side == Side::kBoth) left = missing / 2 + (missing & width & 1);
  TextBuilder out(workspace);
  out.append_repeated(fill, static_cast<size_t>(left));
  out.append(text);
  out.append_repeated(fill, static_cast<size_t>(missing - left));
  return with_markup(workspace, *out.finish(workspace), text.is_markup);
}

const Text* fill_zeros(Workspace& workspace, const Text& text, int64_t width) {
  const auto len = static_cast<int64_t>(length(workspace, text));
  if (width <= len) return &text;
  const bool has_sign = !text.bytes.empty() && (text.bytes[0] == '+' || text.bytes[0] == '-');
  TextBuilder out(workspace);
  if (has_sign) out.append(text, 0, 1);
  const Text zero{.bytes = "0", .from_user = text.from_user, .is_ascii = true};
  out.append_repeated(zero, static_cast<size_t>(width - len));
  out.append(text, has_sign ? 1 : 0, text.bytes.size());
  return out.finish(workspace);
}

namespace {

// Whether there is a cased character and every one is of the one case.
bool has_one_case(Workspace& workspace, const Text& text, bool (*wanted)(char32_t),
                  bool (*unwanted)(char32_t)) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  bool found = false;
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    if (unwanted(character.code) || is_title(character.code)) return false;
    found = found || wanted(character.code);
    at += character.len;
  }
  return found;
}

}  // namespace

bool is_lower_text(Workspace& workspace, const Text& text) {
  return has_one_case(workspace, text, is_lower, is_upper);
}
bool is_upper_text(Workspace& workspace, const Text& text) {
  return has_one_case(workspace, text, is_upper, is_lower);
}

bool all_characters(Workspace& workspace, const Text& text, bool (*test)(char32_t)) {
  workspace.tick(static_cast<int64_t>(text.bytes.size() / 8));
  for (size_t at = 0; at < text.bytes.size();) {
    const Character character = first_character(text.bytes.substr(at));
    if (!test(character.code)) return false;
    at += character.len;
  }
  return !text.bytes.empty();
}

}  // namespace pagoda::model::jinja
