#include "model/tokenizer/detokenizer.h"

#include "model/tokenizer/utf8.h"

namespace pagoda::model {

std::string Utf8Stream::push(std::string_view bytes) {
  std::string input = std::move(pending_);
  pending_.clear();
  input.append(bytes);
  std::string text;
  text.reserve(input.size());
  std::string_view rest = input;
  while (!rest.empty()) {
    const size_t valid_len = utf8_valid_len(rest);
    text.append(rest.substr(0, valid_len));
    rest.remove_prefix(valid_len);
    if (rest.empty()) break;
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Kind::kUnfinished) {
      pending_ = rest;
      break;
    }
    text.append(kReplacementCharacter);
    rest.remove_prefix(step.len);
  }
  return text;
}

std::string Utf8Stream::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

std::string Detokenizer::push(TokenId id) {
  // A skipped token leaves no mark: the bytes on both sides of it join, as in `tokenizers`.
  if (skip_special_ && is_special(tokenizer_.token_kind(id))) return {};
  return utf8_.push(tokenizer_.token_bytes(id));
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special && is_special(tokenizer.token_kind(id))) continue;
    bytes.append(tokenizer.token_bytes(id));
  }
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  text.append(stream.finish());
  return text;
}

}  // namespace pagoda::model
