#include "model/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"

namespace pagoda::model {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view family, std::string_view text) {
  const auto pre_tokenizer = PreTokenizer::create(family);
  CHECK(pre_tokenizer.ok());
  Pieces pieces;
  (*pre_tokenizer)->split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(PreTokenizer, Gpt2) {
  for (const char* family : {"gpt-2", "default"}) {
    EXPECT_EQ(split(family, "I'll don't  stop 1234 times!!"),
              Pieces({"I", "'ll", " don", "'t", " ", " stop", " 1234", " times", "!!"}));
    EXPECT_EQ(split(family, "WE'LL"), Pieces({"WE", "'", "LL"}));
    EXPECT_EQ(split(family, "a \n\n b  "), Pieces({"a", " \n\n", " b", "  "}));
    EXPECT_EQ(split(family, ""), Pieces());
  }
}

TEST(PreTokenizer, SmollmTakesEachDigitAlone) {
  EXPECT_EQ(split("smollm", "x12  3.5"), Pieces({"x", "1", "2", "  ", "3", ".", "5"}));
  // All blanks before a digit stay together, where before a letter the last one goes with it.
  EXPECT_EQ(split("smollm", "a   1"), Pieces({"a", "   ", "1"}));
  EXPECT_EQ(split("smollm", "a   b"), Pieces({"a", "  ", " b"}));
  EXPECT_EQ(split("smollm", "x\u00B2\u00B3\u00BD\u2167\u0663"),
            Pieces({"x", "\u00B2", "\u00B3", "\u00BD", "\u2167", "\u0663"}));
  // Numbers of Unicode 16 and of 17.
  EXPECT_EQ(split("smollm", "..\U00010D40\U00011DE0.\U00016FF6"),
            Pieces({"..", "\U00010D40", "\U00011DE0", ".", "\U00016FF6"}));
}

TEST(PreTokenizer, Llama3) {
  EXPECT_EQ(
      split("llama-bpe", "I'LL say 12345 $foo (bar)\n\n  x"),
      Pieces({"I", "'LL", " say", " ", "123", "45", " $", "foo", " (", "bar", ")\n\n", " ", " x"}));
  EXPECT_EQ(split("llama-bpe", "a \r\n \n b"), Pieces({"a", " \r\n \n", " b"}));
  // The long s is an s in any case.
  EXPECT_EQ(split("llama-bpe", "it'\u017F"), Pieces({"it", "'\u017F"}));
}

TEST(PreTokenizer, Qwen2) {
  EXPECT_EQ(split("qwen2", "n=123 'Re"), Pieces({"n", "=", "1", "2", "3", " '", "Re"}));
  EXPECT_EQ(split("qwen2", "we'Re"), Pieces({"we", "'Re"}));
}

TEST(PreTokenizer, Qwen2ComposesWithTheTablesOfUnicode9) {
  EXPECT_EQ(split("qwen2", "cafe\u0301"), Pieces({"caf\u00E9"}));
  EXPECT_EQ(split("qwen2", "\u212B"), Pieces({"\u00C5"}));
  EXPECT_EQ(split("qwen2", "\u1100\u1161\u11A8"), Pieces({"\uAC01"}));
  EXPECT_EQ(split("qwen2", "a\u0301\u0323"), Pieces({"\u1EA1", "\u0301"}));
  // U+11938 came with Unicode 13.
  EXPECT_EQ(split("qwen2", "\U00011935\U00011930"), Pieces({"\U00011935\U00011930"}));
  EXPECT_EQ(split("llama-bpe", "e\u0301"), Pieces({"e", "\u0301"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodesProperty) {
  for (const char* family : {"gpt-2", "smollm"}) {
    EXPECT_EQ(split(family, "a\u0085\u00A0\u3000b"), Pieces({"a", "\u0085\u00A0", "\u3000", "b"}));
  }
  for (const char* family : {"llama-bpe", "qwen2"}) {
    EXPECT_EQ(split(family, "a\u0085\u00A0\u3000b"), Pieces({"a", "\u0085\u00A0", "\u3000b"}));
  }
  for (const char* family : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    // Neither a Mongolian vowel separator nor a zero-width space nor a separator of ASCII is blank.
    EXPECT_EQ(split(family, "!\u180E\u200B\x1C!"), Pieces({"!\u180E\u200B\x1C!"})) << family;
  }
}

TEST(PreTokenizer, LettersOfUnicode16) {
  for (const char* family : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    EXPECT_EQ(split(family, "a\uA7DA\U000105C0\U000143FAb").size(), 1u) << family;
  }
}

TEST(PreTokenizer, MegabytesOfOneKindNeedNoFallback) {
  const auto repeat = [](std::string_view unit, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += unit;
    return text;
  };
  constexpr size_t kLen = 1'000'000;
  for (const char* family : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    for (const std::string_view blank : {" ", "\t", "\u00A0", "\u3000"}) {
      const std::string blanks = repeat(blank, kLen);
      EXPECT_TRUE(split(family, blanks + "!") ==
                  (blank == " " ? Pieces({blanks.substr(1), " !"})
                                : Pieces({blanks.substr(blank.size()), std::string(blank), "!"})))
          << family;
    }
    EXPECT_EQ(split(family, repeat("x", kLen) + "!").size(), 2u) << family;
    EXPECT_EQ(split(family, repeat("\u4E2D", kLen) + "!").size(), 2u) << family;
    EXPECT_EQ(split(family, repeat("!", kLen) + "x").size(), 2u) << family;
  }
  EXPECT_EQ(split("llama-bpe", repeat(" \n", kLen) + "  x").size(), 3u);
}

TEST(PreTokenizer, AnUnknownNameIsRefused) {
  const auto pre_tokenizer = PreTokenizer::create("no-such-rule");
  EXPECT_EQ(pre_tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(base::message_of(pre_tokenizer.status()).find("no-such-rule"), std::string::npos);
}

}  // namespace
}  // namespace pagoda::model
