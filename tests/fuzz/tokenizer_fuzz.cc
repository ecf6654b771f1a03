// Any bytes, cut anywhere, through every family's tokenizer: what comes out is valid, complete and
// independent of the cuts.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "tests/unit/model/tokenizer/byte_vocabulary.h"

namespace pagoda::model {
namespace {

constexpr std::array<std::string_view, 4> kFamilies = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

std::unique_ptr<Tokenizer> make(std::string_view family) {
  Vocabulary vocabulary = byte_vocabulary(family);
  for (const auto& [left, right] :
       {std::pair("a", "a"), std::pair("aa", "aa"), std::pair("a", "b"), std::pair("ab", "aa"),
        std::pair(" ", " "), std::pair(" ", "a"), std::pair("\xF0", "\x9F"),
        std::pair("\xE2", "\x80"), std::pair("\n", "\n"), std::pair("'", "s")}) {
    add_merge(vocabulary, left, right);
  }
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|im", "<a>", "<a><a>b"}) {
    add_token(vocabulary, text, TokenKind::kControl);
  }
  for (const char* text : {"    ", "a>", "<|", "\xE4\xB8\xAD"}) {
    add_token(vocabulary, text, TokenKind::kUserDefined);
  }
  add_token(vocabulary, "<unused>", TokenKind::kUnused);
  auto tokenizer = make_bpe_tokenizer(std::move(vocabulary));
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string well_formed(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

void check_stream(std::string_view bytes, size_t cut) {
  Utf8Stream stream;
  std::string joined = stream.push(bytes.substr(0, cut));
  CHECK_EQ(utf8_valid_len(joined), joined.size());
  joined += stream.push(bytes.substr(cut));
  joined += stream.finish();
  CHECK(joined == well_formed(bytes));
}

void check_tokenizer(const Tokenizer& tokenizer, std::string_view bytes, size_t cut,
                     SpecialTokens special) {
  std::vector<TokenId> ids;
  tokenizer.encode(bytes, special, ids);
  for (const TokenId id : ids) {
    CHECK(id >= 0 && id < tokenizer.n_vocab());
    CHECK(tokenizer.token_kind(id) != TokenKind::kUnused);
    CHECK(special == SpecialTokens::kParse || !is_special(tokenizer.token_kind(id)));
  }
  const std::string text = decode(tokenizer, ids, false);
  if (tokenizer.vocabulary().pre_tokenizer != "qwen2") CHECK(text == well_formed(bytes));
  std::string joined;
  Detokenizer detokenizer(tokenizer, false);
  for (const TokenId id : ids) joined += detokenizer.push(id);
  joined += detokenizer.finish();
  CHECK(joined == text);

  std::vector<TokenId> of_parts;
  const std::array<TextPart, 2> same = {
      {{bytes.substr(0, cut), special}, {bytes.substr(cut), special}}};
  tokenizer.encode_parts(same, of_parts);
  CHECK(of_parts == ids);
  const std::array<TextPart, 2> mixed = {
      {{bytes.substr(0, cut), SpecialTokens::kParse}, {bytes.substr(cut), SpecialTokens::kAsText}}};
  of_parts.clear();
  tokenizer.encode_parts(mixed, of_parts);
  if (tokenizer.vocabulary().pre_tokenizer != "qwen2") {
    CHECK(decode(tokenizer, of_parts, false) == well_formed(bytes));
  }
}

}  // namespace
}  // namespace pagoda::model

// The first byte picks the family and how control tokens count, the second where the rest is cut.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pagoda::model;
  static const auto tokenizers = [] {
    std::array<std::unique_ptr<Tokenizer>, kFamilies.size()> made;
    for (size_t i = 0; i < made.size(); ++i) made[i] = make(kFamilies[i]);
    return made;
  }();
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = bytes.empty() ? 0 : data[1] % (bytes.size() + 1);
  check_stream(bytes, cut);
  const auto special = (data[0] & 4) != 0 ? SpecialTokens::kParse : SpecialTokens::kAsText;
  check_tokenizer(*tokenizers[data[0] % kFamilies.size()], bytes, cut, special);
  return 0;
}
