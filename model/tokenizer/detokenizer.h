// Tokens in, valid UTF-8 out, as early as it can be told.
#pragma once

#include <string>
#include <string_view>

#include "model/tokenizer/tokenizer.h"

namespace pagoda::model {

// Turns bytes that arrive in pieces into valid UTF-8: an unfinished character is held back, an
// ill-formed part becomes one U+FFFD (the maximal-subpart rule of Unicode, chapter 3). The joined
// output does not depend on how the input was cut. One thread.
class Utf8Stream {
 public:
  // What can be said for sure after these bytes.
  std::string push(std::string_view bytes);
  // The rest: U+FFFD if a character was left unfinished.
  std::string finish();

 private:
  std::string pending_;  // at most three bytes, a valid beginning of a character
};

// One per choice of a request. One thread.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that this token makes certain; often empty for parts of a character.
  std::string push(TokenId id);
  std::string finish() { return utf8_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  Utf8Stream utf8_;
};

}  // namespace pagoda::model
