#include "server/api/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/server/api/byte_tokenizer.h"

namespace pagoda::api {
namespace {

const ByteTokenizer& tokenizer() {
  static const ByteTokenizer instance(
      {"Hello", " wörld", "\xf0\x9f", "\x98", "\x8a", "<|end|>", "Hello", ""});
  return instance;
}

TEST(Logprobs, TokensAreShownAsTextOrAsBytes) {
  EXPECT_EQ(shown_token(tokenizer(), 1), " wörld");
  EXPECT_EQ(shown_token(tokenizer(), 2), "bytes:\\xf0\\x9f");
  EXPECT_EQ(shown_token(tokenizer(), 3), "bytes:\\x98");
  EXPECT_EQ(shown_token(tokenizer(), 5), "<|end|>");
  EXPECT_EQ(shown_token(tokenizer(), 7), "");
}

TEST(Logprobs, WhatJsonCannotHold) {
  EXPECT_EQ(finite_logprob(-std::numeric_limits<float>::infinity()), -9999.0);
  EXPECT_EQ(finite_logprob(std::nanf("")), -9999.0);
  EXPECT_EQ(finite_logprob(-20000.0F), -9999.0);
  EXPECT_EQ(finite_logprob(-0.5F), -0.5);
}

TEST(Logprobs, OffsetsCountCodePointsAndContinueOverTheEcho) {
  LogprobWriter writer(tokenizer(), true);
  const std::vector<TokenId> prompt = {0, 1};
  const std::vector<engine::TokenLogprob> of_prompt = {{1, -1.0F, {{0, -0.5F}}}};
  writer.add_prompt(prompt, 0, false, of_prompt);
  for (const TokenId id : {2, 3, 4, 5, 0}) writer.add({id, -2.0F, {{id, -2.0F}}});
  const LogprobLists lists = writer.take();
  // The emoji's first two parts begin where its text will begin; the control token has no text.
  EXPECT_EQ(lists.text_offset, (std::vector<int64_t>{0, 5, 11, 11, 11, 12, 12}));
  EXPECT_FALSE(lists.token_logprobs[0].has_value());
  EXPECT_FALSE(lists.top_logprobs[0].has_value());
  EXPECT_EQ(lists.token_logprobs[1], -1.0);
  // The token itself is always among the alternatives.
  EXPECT_EQ(*lists.top_logprobs[1], (LogprobLists::Top{{"Hello", -0.5}, {" wörld", -1.0}}));
  EXPECT_TRUE(writer.lists().tokens.empty());
}

TEST(Logprobs, AHiddenFirstTokenHasNoText) {
  LogprobWriter writer(tokenizer(), true);
  const std::vector<TokenId> prompt = {5, 0};
  const std::vector<engine::TokenLogprob> of_prompt = {{0, -1.0F, {}}};
  writer.add_prompt(prompt, 1, false, of_prompt);
  EXPECT_EQ(writer.lists().text_offset, (std::vector<int64_t>{0, 0}));
}

TEST(Logprobs, EqualNamesKeepTheLikelier) {
  LogprobWriter writer(tokenizer(), true);
  writer.add({6, -3.0F, {{0, -1.0F}, {6, -3.0F}}});
  EXPECT_EQ(*writer.lists().top_logprobs[0], (LogprobLists::Top{{"Hello", -1.0}}));
}

}  // namespace
}  // namespace pagoda::api
