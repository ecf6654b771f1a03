// What Python's str knows about characters: blanks, classes, upper and lower case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::model::jinja {

// The character that `text` begins with; a byte that begins none counts as U+FFFD of length 1.
struct Character {
  char32_t code = 0;
  size_t len = 0;
};
Character first_character(std::string_view text);
// The start of the last character.
size_t last_character_begin(std::string_view text);
bool is_character_begin(char byte);

void append_utf8(std::string& text, char32_t code);
bool is_ascii(std::string_view text);
size_t count_characters(std::string_view text);
// The byte where character `index` begins, the end if there are fewer.
size_t character_offset(std::string_view text, size_t index);

// str.isspace(), which is also \s of regular expressions.
bool is_space(char32_t code);
// Ends a line for str.splitlines().
bool is_line_break(char32_t code);
bool is_alpha(char32_t code);
bool is_decimal(char32_t code);
int decimal_value(char32_t code);  // 0 to 9, of what is_decimal
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
bool is_printable(char32_t code);
bool is_word(char32_t code);  // \w
bool is_identifier_begin(char32_t code);
bool is_identifier_part(char32_t code);
bool is_upper(char32_t code);
bool is_lower(char32_t code);
bool is_title(char32_t code);

// Full case mapping of a whole text, by no locale.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string case_fold(std::string_view text);
// The character at byte `at` of a text in lower case; a sigma at the end of a word has its own
// form.
std::string lower_at(std::string_view text, size_t at);
// The first character in title case, the others untouched.
std::string title_first(std::string_view character);

// The character of a Unicode name (\N{…}), 0 if there is none.
char32_t character_by_name(std::string_view name);

}  // namespace pagoda::model::jinja
