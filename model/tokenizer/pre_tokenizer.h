// Cuts text into the pieces inside which byte pairs may merge.
#pragma once

#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/normalizer.h"

namespace pagoda::model {

// One family's rule, by the name that GGUF files give it (tokenizer.ggml.pre). Equal to what
// `tokenizers` 0.23 does with that family's tokenizer.json, its Unicode version included (16, where
// the system's PCRE2 may have 14). Immutable; any thread may call.
class PreTokenizer {
 public:
  // "default" and "gpt-2", "smollm", "llama-bpe", "qwen2"; else kInvalidArgument.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> create(std::string_view name);
  ~PreTokenizer();

  // Calls `take` with the pieces of `text` (UTF-8) from left to right; joined they are the text, in
  // normal form C for "qwen2". A piece lives until `take` returns. Should PCRE2 give up (memory, or
  // its match limit, which grows with the text), then all that is left is one piece.
  void split(std::string_view text, absl::FunctionRef<void(std::string_view)> take) const;

  // A piece that is itself in the vocabulary is that token, whatever the merges say.
  bool whole_pieces_first() const { return whole_pieces_first_; }

 private:
  struct Regex;
  PreTokenizer(std::unique_ptr<Regex> regex, std::unique_ptr<Nfc> nfc, bool whole_pieces_first);

  const std::unique_ptr<Regex> regex_;
  const std::unique_ptr<Nfc> nfc_;  // null: the text stays as it is
  const bool whole_pieces_first_;
};

}  // namespace pagoda::model
