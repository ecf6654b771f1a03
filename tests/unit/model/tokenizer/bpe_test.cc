#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>

#include "base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/unit/model/tokenizer/byte_vocabulary.h"

namespace pagoda::model {
namespace {

using Ids = std::vector<TokenId>;
constexpr auto kParse = SpecialTokens::kParse;
constexpr auto kAsText = SpecialTokens::kAsText;

std::unique_ptr<Tokenizer> make(Vocabulary vocabulary) {
  auto tokenizer = make_bpe_tokenizer(std::move(vocabulary));
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special = kAsText) {
  Ids ids;
  tokenizer.encode(text, special, ids);
  return ids;
}

Ids encode_parts(const Tokenizer& tokenizer, const std::vector<TextPart>& parts) {
  Ids ids;
  tokenizer.encode_parts(parts, ids);
  return ids;
}

std::string error_of(Vocabulary vocabulary) {
  const auto tokenizer = make_bpe_tokenizer(std::move(vocabulary));
  if (tokenizer.ok()) return "";
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  return base::message_of(tokenizer.status());
}

TEST(Bpe, MergesBySmallestRankAndOfEqualsTheLeftmost) {
  Vocabulary vocabulary = byte_vocabulary("gpt-2");
  const TokenId bc = add_merge(vocabulary, "b", "c");
  const TokenId ab = add_merge(vocabulary, "a", "b");
  const TokenId aa = add_merge(vocabulary, "a", "a");
  const TokenId abc = add_merge(vocabulary, "a", "bc");
  const auto tokenizer = make(std::move(vocabulary));
  EXPECT_EQ(encode(*tokenizer, "abc"), Ids({abc}));
  EXPECT_EQ(encode(*tokenizer, "abb"), Ids({ab, 'b'}));
  EXPECT_EQ(encode(*tokenizer, "aaa"), Ids({aa, 'a'}));
  EXPECT_EQ(encode(*tokenizer, "aabc"), Ids({aa, bc}));
  EXPECT_EQ(encode(*tokenizer, "a b"), Ids({'a', ' ', 'b'}));
  EXPECT_EQ(encode(*tokenizer, ""), Ids());
}

TEST(Bpe, AppendsToTheIdsGiven) {
  const auto tokenizer = make(byte_vocabulary("gpt-2"));
  Ids ids = {7};
  tokenizer->encode("x", kAsText, ids);
  EXPECT_EQ(ids, Ids({7, 'x'}));
}

// The definition, without any cleverness: look for the best pair, merge it, begin again.
Ids merge_slowly(std::string_view text,
                 const std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>>& merges) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  for (;;) {
    size_t best = ids.size();
    size_t best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = merges.find({ids[i], ids[i + 1]});
      if (it == merges.end() || it->second.first >= best_rank) continue;
      best = i;
      best_rank = it->second.first;
    }
    if (best == ids.size()) return ids;
    ids[best] = merges.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, EqualsTheDefinitionOnRandomVocabularies) {
  std::mt19937 rng(11);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  for (int round = 0; round < 60; ++round) {
    Vocabulary vocabulary = byte_vocabulary("gpt-2");
    const size_t n_letters = 1 + below(4);
    std::vector<std::pair<std::string, TokenId>> known;
    for (size_t i = 0; i < n_letters; ++i) {
      const char letter = static_cast<char>('a' + i);
      known.emplace_back(std::string(1, letter), letter);
    }
    std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> merges;
    for (size_t rank = 0; rank < 40; ++rank) {
      const auto left = known[below(known.size())];
      const auto right = known[below(known.size())];
      if (merges.contains({left.second, right.second})) continue;
      const TokenId id = add_merge(vocabulary, left.first, right.first);
      merges[{left.second, right.second}] = {vocabulary.merges.size(), id};
      known.emplace_back(left.first + right.first, id);
    }
    const auto tokenizer = make(std::move(vocabulary));
    for (int i = 0; i < 60; ++i) {
      std::string text(1 + below(i % 3 == 0 ? 300 : 40), ' ');
      for (char& c : text) c = static_cast<char>('a' + below(n_letters));
      ASSERT_EQ(encode(*tokenizer, text), merge_slowly(text, merges)) << text;
    }
  }
}

TEST(Bpe, MegabytesWithoutAnySpaceTakeNoQuadraticTime) {
  Vocabulary vocabulary = byte_vocabulary("llama-bpe");
  std::string piece = "a";
  for (int i = 0; i < 6; ++i, piece += piece) add_merge(vocabulary, piece, piece);
  std::mt19937 rng(5);
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) add_merge(vocabulary, {&a, 1}, {&b, 1});
  }
  const auto tokenizer = make(std::move(vocabulary));
  std::string letters(1 << 20, 'x');
  for (char& c : letters) c = static_cast<char>('a' + rng() % 26);
  std::string mixed_blanks;
  for (int i = 0; i < 1 << 19; ++i) mixed_blanks += rng() % 2 == 0 ? " \n" : "\xC2\xA0";
  for (const std::string& text :
       {std::string(1 << 20, 'a'), letters, std::string(1 << 20, ' ') + "x",
        std::string(1 << 20, '\n'), std::string(1 << 20, '\''), std::string(1 << 20, '\xFF'),
        mixed_blanks}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = encode(*tokenizer, text);
    const auto took = std::chrono::steady_clock::now() - begin;
    // Far above what it takes, even instrumented; a quadratic algorithm needs hours.
    EXPECT_LT(took, std::chrono::seconds(20));
    EXPECT_TRUE(text[0] == '\xFF' || decode(*tokenizer, ids, false) == text);
  }
}

TEST(Bpe, AWholePieceComesFirstInLlamasFamilyOnly) {
  for (const auto& [family, whole] : {std::pair("llama-bpe", true), std::pair("gpt-2", false)}) {
    Vocabulary vocabulary = byte_vocabulary(family);
    const TokenId word = add_token(vocabulary, "word", TokenKind::kNormal);  // no merge makes it
    const auto tokenizer = make(std::move(vocabulary));
    EXPECT_EQ(encode(*tokenizer, "word"), whole ? Ids({word}) : Ids({'w', 'o', 'r', 'd'}));
    EXPECT_EQ(encode(*tokenizer, "words"), Ids({'w', 'o', 'r', 'd', 's'}));
  }
}

TEST(Bpe, AByteWithoutATokenIsLeftOut) {
  Vocabulary vocabulary = byte_vocabulary("gpt-2");
  const TokenId ac = add_merge(vocabulary, "a", "c");
  vocabulary.texts['b'] = "<not b>";
  const auto tokenizer = make(std::move(vocabulary));
  EXPECT_EQ(encode(*tokenizer, "abc"), Ids({ac}));
  EXPECT_EQ(encode(*tokenizer, "b"), Ids());
}

TEST(Bpe, OrdinaryTokensThatAreNotOfTheAlphabetStandForThemselves) {
  Vocabulary vocabulary = byte_vocabulary("llama-bpe");
  const TokenId word = add_token(vocabulary, "\xE4\xB8\xAD", TokenKind::kNormal);
  const auto tokenizer = make(std::move(vocabulary));
  EXPECT_EQ(tokenizer->token_bytes(word), "\xE4\xB8\xAD");
  EXPECT_EQ(encode(*tokenizer, "\xE4\xB8\xAD"), Ids({0xE4, 0xB8, 0xAD}));
}

class AddedTokensTest : public testing::Test {
 protected:
  AddedTokensTest() {
    Vocabulary vocabulary = byte_vocabulary("gpt-2");
    end_ = add_token(vocabulary, "<end>", TokenKind::kControl);
    end_turn_ = add_token(vocabulary, "<end>turn", TokenKind::kControl);
    unknown_ = add_token(vocabulary, "<unk>", TokenKind::kUnknown);
    unused_ = add_token(vocabulary, "<unused>", TokenKind::kUnused);
    tool_ = add_token(vocabulary, "<tool>", TokenKind::kUserDefined);
    spaces_ = add_token(vocabulary, "  ", TokenKind::kUserDefined);
    add_token(vocabulary, "", TokenKind::kControl);
    add_token(vocabulary, "\x80", TokenKind::kUserDefined);  // would match inside a character
    tokenizer_ = make(std::move(vocabulary));
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId end_, end_turn_, unknown_, unused_, tool_, spaces_;
};

TEST_F(AddedTokensTest, ControlTokensCountOnlyWhenAsked) {
  EXPECT_EQ(encode(*tokenizer_, "a<end>b", kParse), Ids({'a', end_, 'b'}));
  EXPECT_EQ(encode(*tokenizer_, "a<end>b"), Ids({'a', '<', 'e', 'n', 'd', '>', 'b'}));
  EXPECT_EQ(encode(*tokenizer_, "<unk>", kParse), Ids({unknown_}));
  EXPECT_EQ(encode(*tokenizer_, "<unk>"), Ids({'<', 'u', 'n', 'k', '>'}));
}

TEST_F(AddedTokensTest, TheLongestAtAPlaceWins) {
  EXPECT_EQ(encode(*tokenizer_, "<end>turn<end>tur", kParse),
            Ids({end_turn_, end_, 't', 'u', 'r'}));
  EXPECT_EQ(encode(*tokenizer_, "<<end>", kParse), Ids({'<', end_}));
}

TEST_F(AddedTokensTest, UserDefinedTokensAlwaysCountAndUnusedNever) {
  EXPECT_EQ(encode(*tokenizer_, "x<tool>   <unused>"),
            Ids({'x', tool_, spaces_, ' ', '<', 'u', 'n', 'u', 's', 'e', 'd', '>'}));
  EXPECT_EQ(encode(*tokenizer_, "<unused>", kParse), Ids({'<', 'u', 'n', 'u', 's', 'e', 'd', '>'}));
  EXPECT_EQ(encode(*tokenizer_, "\xC2\x80"), Ids({0xC2, 0x80}));
}

TEST_F(AddedTokensTest, BytesAndKinds) {
  EXPECT_EQ(tokenizer_->token_bytes(' '), " ");
  EXPECT_EQ(tokenizer_->token_bytes(0xFF), "\xFF");
  EXPECT_EQ(tokenizer_->token_bytes(end_), "<end>");
  EXPECT_EQ(tokenizer_->token_bytes(spaces_), "  ");
  EXPECT_EQ(tokenizer_->token_kind(tool_), TokenKind::kUserDefined);
  for (const TokenId id : {-1, tokenizer_->n_vocab(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer_->token_bytes(id), "");
    EXPECT_EQ(tokenizer_->token_kind(id), TokenKind::kUnused);
  }
}

TEST_F(AddedTokensTest, AUserCannotWriteAControlToken) {
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<end>", kParse}, {"<end>", kAsText}, {"<end>", kParse}}),
            Ids({end_, '<', 'e', 'n', 'd', '>', end_}));
  // Nor half of one, whichever half.
  const Ids as_text = {'<', 'e', 'n', 'd', '>'};
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<en", kParse}, {"d>", kAsText}}), as_text);
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<", kAsText}, {"end>", kParse}}), as_text);
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<e", kParse}, {"n", kAsText}, {"d>", kParse}}), as_text);
  // A longer control token that reaches into the user's text does not hide the template's own.
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<end>", kParse}, {"turn", kAsText}}),
            Ids({end_, 't', 'u', 'r', 'n'}));
}

TEST_F(AddedTokensTest, PartsJoin) {
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<en", kParse}, {"", kAsText}, {"d>", kParse}}),
            Ids({end_}));
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<to", kParse}, {"ol> ", kAsText}, {" ", kParse}}),
            Ids({tool_, spaces_}));
  EXPECT_EQ(encode_parts(*tokenizer_, {{"\xC3", kAsText}, {"\xA9", kParse}}), Ids({0xC3, 0xA9}));
  EXPECT_EQ(encode_parts(*tokenizer_, {}), Ids());
}

TEST_F(AddedTokensTest, IllFormedPartsDoNotShiftWhereControlTokensCount) {
  const Ids bad = {0xEF, 0xBF, 0xBD};
  Ids want = bad;
  want.push_back('<');
  for (const char c : std::string_view("end>")) want.push_back(c);
  want.push_back(end_);
  want.insert(want.end(), bad.begin(), bad.end());
  want.push_back(end_);
  // The last part begins inside an ill-formed sequence that the user's text leaves open.
  EXPECT_EQ(
      encode_parts(
          *tokenizer_,
          {{"\xFF<end>", kAsText}, {"<end>", kParse}, {"\xF0\x9F", kAsText}, {"<end>", kParse}}),
      want);
  EXPECT_EQ(encode_parts(*tokenizer_, {{"\xF0\x9F", kAsText}, {"\x98<end>", kParse}}),
            Ids({0xEF, 0xBF, 0xBD, end_}));
  EXPECT_EQ(encode_parts(*tokenizer_, {{"<end>\xF0", kParse}, {"\x9F", kAsText}}),
            Ids({end_, 0xEF, 0xBF, 0xBD}));
}

TEST(Bpe, IllFormedBytesBecomeOneReplacementForEachMaximalPart) {
  const auto tokenizer = make(byte_vocabulary("gpt-2"));
  const auto text_of = [&](std::string_view bytes) {
    return decode(*tokenizer, encode(*tokenizer, bytes), false);
  };
  EXPECT_EQ(text_of("a\xFF"), "a\uFFFD");
  EXPECT_EQ(text_of("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(text_of("\xE0\x80\x80z"), "\uFFFD\uFFFD\uFFFDz");
  EXPECT_EQ(text_of("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
}

TEST(BpeVocabulary, ContradictionsAreNamed) {
  Vocabulary good = byte_vocabulary("gpt-2");
  add_merge(good, "a", "b");
  EXPECT_EQ(error_of(good), "");

  Vocabulary bad = good;
  bad.merges.push_back("a");
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.merges[1]"), std::string::npos);
  bad = good;
  bad.merges.push_back("");
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.merges[1]"), std::string::npos);
  bad = good;
  bad.merges.push_back("a c");  // "ac" is no token
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.merges[1]"), std::string::npos);
  bad = good;
  add_token(bad, "ac", TokenKind::kControl);
  bad.merges.push_back("a c");  // anybody could write the control token
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.merges[1]"), std::string::npos);
  bad = good;
  bad.kinds.pop_back();
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.token_type"), std::string::npos);
  bad = good;
  bad.pre_tokenizer = "unheard-of";
  EXPECT_NE(error_of(bad).find("tokenizer.ggml.pre"), std::string::npos);
  bad = good;
  bad.bos = static_cast<TokenId>(good.texts.size());
  EXPECT_NE(error_of(bad).find("bos_token_id"), std::string::npos);
  bad = good;
  bad.eos = -2;
  EXPECT_NE(error_of(bad).find("eos_token_id"), std::string::npos);
  bad = good;
  bad.end_ids = {0, -1};
  EXPECT_NE(error_of(bad).find("eot_token_id"), std::string::npos);
  EXPECT_NE(error_of({}).find("tokenizer.ggml.tokens"), std::string::npos);
}

TEST(BpeVocabulary, OfEqualTextsTheFirstOrdinaryTokenCounts) {
  Vocabulary vocabulary = byte_vocabulary("llama-bpe");
  const TokenId control = add_token(vocabulary, "ab", TokenKind::kControl);
  const TokenId first = add_token(vocabulary, "ab", TokenKind::kNormal);
  add_token(vocabulary, "ab", TokenKind::kNormal);
  vocabulary.merges.push_back("a b");
  const auto tokenizer = make(std::move(vocabulary));
  EXPECT_EQ(encode(*tokenizer, "ab"), Ids({first}));
  EXPECT_EQ(encode(*tokenizer, "ab", kParse), Ids({control}));
  EXPECT_EQ(encode(*tokenizer, "abc"), Ids({first, 'c'}));
}

}  // namespace
}  // namespace pagoda::model
