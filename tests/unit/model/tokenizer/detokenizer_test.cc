#include "model/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/check.h"
#include "model/tokenizer/utf8.h"
#include "tests/unit/model/tokenizer/byte_vocabulary.h"

namespace pagoda::model {
namespace {

using Deltas = std::vector<std::string>;

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

TEST(Utf8Stream, IllFormedPartsAsInTheUnicodeStandard) {
  // Tables 3-8 to 3-11.
  EXPECT_EQ(whole("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(whole("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(whole("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
}

TEST(Utf8Stream, EveryCharacterPasses) {
  std::string all;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const auto low = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      all += static_cast<char>(code);
    } else if (code < 0x800) {
      all += {static_cast<char>(0xC0 | code >> 6), low(0)};
    } else if (code < 0x10000) {
      all += {static_cast<char>(0xE0 | code >> 12), low(6), low(0)};
    } else {
      all += {static_cast<char>(0xF0 | code >> 18), low(12), low(6), low(0)};
    }
  }
  EXPECT_TRUE(whole(all) == all);
  EXPECT_EQ(utf8_valid_len(all), all.size());
}

TEST(Utf8Stream, TheJoinedTextDoesNotDependOnTheCuts) {
  std::mt19937 rng(1);
  constexpr std::string_view kBytes(
      "aZ\x80\xBF\xC2\xC3\xA9\xE0\xA0\xED\xF0\x9F\x98\x8A\xF4\x8F\xFF");
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t i = rng() % 9; i > 0; --i) bytes += kBytes[rng() % kBytes.size()];
    const std::string want = whole(bytes);
    ASSERT_EQ(utf8_valid_len(want), want.size());
    const uint32_t n_cuts = 1u << (bytes.empty() ? 0 : bytes.size() - 1);
    for (uint32_t cuts = 0; cuts < n_cuts; ++cuts) {
      Utf8Stream stream;
      std::string joined;
      size_t begin = 0;
      for (size_t end = 1; end <= bytes.size(); ++end) {
        if (end < bytes.size() && (cuts >> (end - 1) & 1) == 0) continue;
        const std::string delta = stream.push(std::string_view(bytes).substr(begin, end - begin));
        ASSERT_EQ(utf8_valid_len(delta), delta.size());
        joined += delta;
        begin = end;
      }
      ASSERT_EQ(joined + stream.finish(), want);
    }
  }
}

TEST(Utf8Stream, TextComesAsSoonAsItIsCertain) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("ab\xE2\x80"), "ab");
  EXPECT_EQ(stream.push(""), "");
  EXPECT_EQ(stream.push("\x94z"), "\u2014z");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.push("!"), "\uFFFD!");
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

// Characters in two and three tokens, as in SmolLM2: the first token of an emoji is two bytes.
class DetokenizerTest : public testing::Test {
 protected:
  DetokenizerTest() {
    Vocabulary vocabulary = byte_vocabulary("smollm");
    half_ = add_merge(vocabulary, "\xF0", "\x9F");
    two_thirds_ = add_merge(vocabulary, "\xE6", "\xAD");
    end_ = add_token(vocabulary, "<|im_end|>", TokenKind::kControl);
    auto tokenizer = make_bpe_tokenizer(std::move(vocabulary));
    CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }

  // The deltas that are not empty; what finish() gives is the last.
  Deltas deltas(const std::vector<TokenId>& ids, bool skip_special = true) const {
    Detokenizer detokenizer(*tokenizer_, skip_special);
    Deltas all;
    std::string joined;
    for (const TokenId id : ids) {
      all.push_back(detokenizer.push(id));
      EXPECT_EQ(utf8_valid_len(all.back()), all.back().size());
    }
    all.push_back(detokenizer.finish());
    std::erase(all, "");
    for (const std::string& delta : all) joined += delta;
    EXPECT_EQ(joined, decode(*tokenizer_, ids, skip_special));
    return all;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId half_, two_thirds_, end_;
};

TEST_F(DetokenizerTest, CharactersOverSeveralTokens) {
  EXPECT_EQ(deltas({half_, 0x98, 0x8A}), Deltas({"\U0001F60A"}));
  EXPECT_EQ(deltas({half_, 0x91, 0x8D, half_, 0x8F, 0xBD}), Deltas({"\U0001F44D", "\U0001F3FD"}));
  EXPECT_EQ(deltas({two_thirds_, 0xAA, two_thirds_}), Deltas({"\u6B6A", "\uFFFD"}));
  EXPECT_EQ(deltas({half_, 0x98, half_, 0x98, 0x8A}), Deltas({"\uFFFD", "\U0001F60A"}));
  EXPECT_EQ(deltas({half_, half_, half_, half_}), Deltas({"\uFFFD", "\uFFFD", "\uFFFD", "\uFFFD"}));
}

TEST_F(DetokenizerTest, BytesOfPartsAreTheTrueOnes) {
  EXPECT_EQ(tokenizer_->token_bytes(half_), "\xF0\x9F");
  EXPECT_EQ(tokenizer_->token_bytes(0x98), "\x98");
}

TEST_F(DetokenizerTest, SpecialTokensAreTextOrNothing) {
  EXPECT_EQ(deltas({'a', end_, 'b'}, false), Deltas({"a", "<|im_end|>", "b"}));
  EXPECT_EQ(deltas({'a', end_, 'b'}, true), Deltas({"a", "b"}));
  // A skipped token leaves no mark, one that is shown ends the character before it.
  EXPECT_EQ(deltas({half_, end_, 0x98, 0x8A}, true), Deltas({"\U0001F60A"}));
  EXPECT_EQ(deltas({half_, end_, 'b'}, false), Deltas({"\uFFFD<|im_end|>", "b"}));
}

TEST_F(DetokenizerTest, IdsOutsideTheVocabularyAreNothing) {
  EXPECT_EQ(deltas({-1, 'a', INT32_MAX, tokenizer_->n_vocab()}), Deltas({"a"}));
}

}  // namespace
}  // namespace pagoda::model
