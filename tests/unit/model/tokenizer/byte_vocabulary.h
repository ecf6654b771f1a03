// Small byte-level vocabularies, made by hand.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace pagoda::model {

// How GPT-2's alphabet writes `bytes`.
inline std::string in_alphabet(std::string_view bytes) {
  const auto printable = [](unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
  };
  std::string text;
  for (const char c : bytes) {
    unsigned code = static_cast<unsigned char>(c);
    if (!printable(code)) {
      unsigned before = 0;  // bytes below this one that aren't printable either
      for (unsigned byte = 0; byte < code; ++byte) before += printable(byte) ? 0 : 1;
      code = 0x100 + before;
    }
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

// Ids 0 to 255 are the bytes.
inline Vocabulary byte_vocabulary(std::string_view pre_tokenizer) {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary.texts.push_back(in_alphabet({&c, 1}));
    vocabulary.kinds.push_back(TokenKind::kNormal);
  }
  vocabulary.pre_tokenizer = pre_tokenizer;
  return vocabulary;
}

// Adds a token whose text is stored as given.
inline TokenId add_token(Vocabulary& vocabulary, std::string_view text, TokenKind kind) {
  vocabulary.texts.emplace_back(text);
  vocabulary.kinds.push_back(kind);
  return static_cast<TokenId>(vocabulary.texts.size()) - 1;
}

// Adds the next merge, of two byte strings that are tokens, and its result.
inline TokenId add_merge(Vocabulary& vocabulary, std::string_view left, std::string_view right) {
  vocabulary.merges.push_back(in_alphabet(left) + " " + in_alphabet(right));
  const std::string merged = in_alphabet(left) + in_alphabet(right);
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    if (vocabulary.texts[i] == merged) return static_cast<TokenId>(i);
  }
  return add_token(vocabulary, merged, TokenKind::kNormal);
}

}  // namespace pagoda::model
