// Text to token ids and back, for one vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda::model {

using TokenId = int32_t;

enum class TokenKind : uint8_t { kNormal, kControl, kUserDefined, kUnused, kByte, kUnknown };

// The unknown token is handled as a control token: no text that a user writes may become it.
inline bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

// What a model file says of its vocabulary; see the GGUF specification's tokenizer.ggml.* keys.
struct Vocabulary {
  std::vector<std::string> texts;   // [n_vocab], as stored (byte-level BPE: in the GPT-2 alphabet)
  std::vector<TokenKind> kinds;     // [n_vocab]
  std::vector<std::string> merges;  // "left right", by falling priority
  std::string pre_tokenizer;        // "default", "gpt-2", "smollm", "llama-bpe", "qwen2"
  TokenId bos = -1;                 // -1: none
  TokenId eos = -1;
  std::vector<TokenId> end_ids;  // every id that ends an answer: eos, eot, eom
  bool add_bos = false;
  std::string chat_template;
};

enum class SpecialTokens : uint8_t {
  kParse,   // control tokens in the text become their ids
  kAsText,  // the text is only text
};

// A stretch of a prompt and whether control tokens count in it.
struct TextPart {
  std::string_view text;
  SpecialTokens special = SpecialTokens::kAsText;
};

// Immutable after creation: any thread may call.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text`, which is shorter than 2 GiB. Takes time linear in its length (times
  // a logarithm). Bytes that are not UTF-8 are encoded as U+FFFD, one for each maximal ill-formed
  // part, as Unicode recommends. Added tokens that are not control tokens are always found; control
  // tokens as `special` says; the leftmost wins, of several there the longest. The text between
  // them is normalised if the family's reference does so (qwen2: NFC of Unicode 9). A byte for
  // which the vocabulary has no token is left out. All as Hugging Face's `tokenizers` does it.
  virtual void encode(std::string_view text, SpecialTokens special,
                      std::vector<TokenId>& ids) const = 0;
  // Appends the ids of the parts' joined text: the same ids however the text is cut, but that a
  // control token is found only where all of it lies in kParse text. So a template's own control
  // tokens count and those that a user wrote are text, while words still join over the borders.
  virtual void encode_parts(std::span<const TextPart> parts, std::vector<TokenId>& ids) const = 0;

  // The bytes that a token stands for; may be part of a UTF-8 character. Control tokens give their
  // text. Empty for an id outside the vocabulary.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  // kUnused for an id outside the vocabulary.
  virtual TokenKind token_kind(TokenId id) const = 0;
  virtual int32_t n_vocab() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// kInvalidArgument, naming the key, for a vocabulary that contradicts itself (a merge of unknown
// pieces, an id outside, an unknown pre-tokenizer).
absl::StatusOr<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(Vocabulary vocabulary);

// Decodes all ids at once; ill-formed bytes become U+FFFD. Skipped special tokens leave no mark:
// the bytes on both sides of one join, even to one character, as in `tokenizers`.
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special);

}  // namespace pagoda::model
