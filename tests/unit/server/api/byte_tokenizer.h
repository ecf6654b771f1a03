// A tokenizer whose tokens are the given bytes; what begins with "<|" is a control token.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace pagoda::api {

class ByteTokenizer final : public model::Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  // Every byte that is a token is one; the others are left out.
  void encode(std::string_view text, model::SpecialTokens,
              std::vector<model::TokenId>& ids) const override {
    for (const char byte : text) {
      for (size_t id = 0; id < tokens_.size(); ++id) {
        if (tokens_[id] == std::string_view(&byte, 1)) {
          ids.push_back(static_cast<model::TokenId>(id));
        }
      }
    }
  }
  void encode_parts(std::span<const model::TextPart> parts,
                    std::vector<model::TokenId>& ids) const override {
    for (const model::TextPart& part : parts) encode(part.text, part.special, ids);
  }
  std::string_view token_bytes(model::TokenId id) const override {
    return tokens_.at(static_cast<size_t>(id));
  }
  model::TokenKind token_kind(model::TokenId id) const override {
    return token_bytes(id).starts_with("<|") ? model::TokenKind::kControl
                                             : model::TokenKind::kNormal;
  }
  int32_t n_vocab() const override { return static_cast<int32_t>(tokens_.size()); }
  const model::Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  std::vector<std::string> tokens_;
  model::Vocabulary vocabulary_;
};

}  // namespace pagoda::api
