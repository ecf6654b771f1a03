#include "model/template/unicode.h"

#include <unicode/ucasemap.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "model/tokenizer/utf8.h"

namespace pagoda::model::jinja {

namespace {

UChar32 icu(char32_t code) { return static_cast<UChar32>(code); }

struct CaseMapDeleter {
  void operator()(UCaseMap* map) const { ucasemap_close(map); }
};

using MapFunction = int32_t (*)(const UCaseMap*, char*, int32_t, const char*, int32_t, UErrorCode*);

std::string map_case(MapFunction function, std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, CaseMapDeleter> map(ucasemap_open("", 0, &error));
  CHECK(U_SUCCESS(error));
  std::string mapped(text.size() + 16, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    error = U_ZERO_ERROR;
    const int32_t len = function(map.get(), mapped.data(), static_cast<int32_t>(mapped.size()),
                                 text.data(), static_cast<int32_t>(text.size()), &error);
    mapped.resize(static_cast<size_t>(len));
    if (error != U_BUFFER_OVERFLOW_ERROR) break;
  }
  return mapped;
}

std::string map_ascii(std::string_view text, char first, char last) {
  std::string mapped(text);
  for (char& c : mapped) {
    if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
  }
  return mapped;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const Utf8Step step = utf8_step(text);
  if (step.kind != Utf8Kind::kCharacter) return {0xFFFD, 1};
  if (step.len == 2) return {(byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (step.len == 3) {
    return {(byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  }
  return {(byte(0) & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
              (byte(3) & 0x3Fu),
          4};
}

bool is_character_begin(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t last_character_begin(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && !is_character_begin(text[begin])) --begin;
  return first_character(text.substr(begin)).len == text.size() - begin ? begin : text.size() - 1;
}

void append_utf8(std::string& text, char32_t code) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | code >> 18);
    push(0x80 | (code >> 12 & 0x3F));
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

size_t count_characters(std::string_view text) {
  if (is_ascii(text)) return text.size();
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += first_character(text.substr(at)).len;
  return count;
}

size_t character_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += first_character(text.substr(at)).len;
  return at;
}

bool is_space(char32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_line_break(char32_t code) {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool is_alpha(char32_t code) { return (U_GET_GC_MASK(icu(code)) & U_GC_L_MASK) != 0; }
int decimal_value(char32_t code) { return u_charDigitValue(icu(code)); }
bool is_decimal(char32_t code) { return u_charType(icu(code)) == U_DECIMAL_DIGIT_NUMBER; }
bool is_digit(char32_t code) {
  const int32_t type = u_getIntPropertyValue(icu(code), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_numeric(char32_t code) {
  return u_getIntPropertyValue(icu(code), UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}
bool is_printable(char32_t code) {
  if (code == ' ') return true;
  const uint32_t hidden = U_GC_C_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(icu(code)) & hidden) == 0;
}
bool is_word(char32_t code) { return code == '_' || is_alpha(code) || is_numeric(code); }
bool is_identifier_begin(char32_t code) {
  return code == '_' || u_hasBinaryProperty(icu(code), UCHAR_XID_START) != 0;
}
bool is_identifier_part(char32_t code) {
  return u_hasBinaryProperty(icu(code), UCHAR_XID_CONTINUE) != 0;
}
bool is_upper(char32_t code) { return u_hasBinaryProperty(icu(code), UCHAR_UPPERCASE) != 0; }
bool is_lower(char32_t code) { return u_hasBinaryProperty(icu(code), UCHAR_LOWERCASE) != 0; }
bool is_title(char32_t code) { return u_charType(icu(code)) == U_TITLECASE_LETTER; }

std::string upper(std::string_view text) {
  return is_ascii(text) ? map_ascii(text, 'a', 'z') : map_case(ucasemap_utf8ToUpper, text);
}
std::string lower(std::string_view text) {
  return is_ascii(text) ? map_ascii(text, 'A', 'Z') : map_case(ucasemap_utf8ToLower, text);
}
std::string case_fold(std::string_view text) {
  return is_ascii(text) ? map_ascii(text, 'A', 'Z') : map_case(ucasemap_utf8FoldCase, text);
}

std::string lower_at(std::string_view text, size_t at) {
  constexpr char32_t kCapitalSigma = 0x3A3;
  const Character character = first_character(text.substr(at));
  if (character.code != kCapitalSigma) return lower(text.substr(at, character.len));
  const auto is_ignorable = [](char32_t code) {
    return u_hasBinaryProperty(icu(code), UCHAR_CASE_IGNORABLE) != 0;
  };
  const auto is_cased = [](char32_t code) {
    return u_hasBinaryProperty(icu(code), UCHAR_CASED) != 0;
  };
  // Far away nothing counts as part of the word.
  constexpr int kMaxIgnorable = 64;
  bool after_cased = false;
  size_t before = at;
  for (int i = 0; before > 0 && i < kMaxIgnorable; ++i) {
    before = last_character_begin(text.substr(0, before));
    const char32_t code = first_character(text.substr(before)).code;
    after_cased = is_cased(code);
    if (!is_ignorable(code)) break;
  }
  bool before_cased = false;
  size_t after = at + character.len;
  for (int i = 0; after < text.size() && i < kMaxIgnorable; ++i) {
    const Character next = first_character(text.substr(after));
    before_cased = is_cased(next.code);
    if (!is_ignorable(next.code)) break;
    after += next.len;
  }
  return after_cased && !before_cased ? "\xCF\x82" : "\xCF\x83";
}

std::string title_first(std::string_view character) {
  const char32_t code = first_character(character).code;
  const char32_t title = static_cast<char32_t>(u_totitle(icu(code)));
  // Characters such as U+00DF have no single title form; their upper form of several characters
  // then has only its first one upper.
  if (title == code && code >= 0x80) {
    const std::string mapped = upper(character);
    if (mapped != character) {
      const size_t len = first_character(mapped).len;
      return mapped.substr(0, len) + lower(std::string_view(mapped).substr(len));
    }
  }
  std::string text;
  append_utf8(text, title);
  return text;
}

char32_t character_by_name(std::string_view name) {
  UErrorCode error = U_ZERO_ERROR;
  const UChar32 code = u_charFromName(U_EXTENDED_CHAR_NAME, std::string(name).c_str(), &error);
  if (U_SUCCESS(error)) return static_cast<char32_t>(code);
  error = U_ZERO_ERROR;
  const UChar32 alias = u_charFromName(U_CHAR_NAME_ALIAS, std::string(name).c_str(), &error);
  return U_SUCCESS(error) ? static_cast<char32_t>(alias) : 0;
}

}  // namespace pagoda::model::jinja
