// UTF-8 as bytes arrive: what is well-formed, what can never become so, what is still open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::model {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind : uint8_t {
  kCharacter,   // one well-formed character
  kIllFormed,   // the maximal ill-formed part (Unicode, chapter 3): no further byte can save it
  kUnfinished,  // a well-formed beginning that the end of the bytes cuts off
};

struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kCharacter;
  size_t len = 0;  // bytes: 1 to 4, 1 to 3, 1 to 3
};

// What `bytes` begins with; `bytes` is not empty.
Utf8Step utf8_step(std::string_view bytes);

// How many bytes at the front are whole well-formed characters.
size_t utf8_valid_len(std::string_view bytes);

}  // namespace pagoda::model
