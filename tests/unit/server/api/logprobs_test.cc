#include "server/api/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/completion_json.h"

namespace pagoda::api {
namespace {

// A tokenizer whose tokens are the given bytes.
class ByteTokenizer final : public model::Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  void encode(std::string_view, model::SpecialTokens, std::vector<TokenId>&) const override {}
  void encode_parts(std::span<const model::TextPart>, std::vector<TokenId>&) const override {}
  std::string_view token_bytes(TokenId id) const override {
    return tokens_.at(static_cast<size_t>(id));
  }
  model::TokenKind token_kind(TokenId id) const override {
    return token_bytes(id).starts_with("<|") ? model::TokenKind::kControl
                                             : model::TokenKind::kNormal;
  }
  int32_t n_vocab() const override { return static_cast<int32_t>(tokens_.size()); }
  const model::Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  std::vector<std::string> tokens_;
  model::Vocabulary vocabulary_;
};

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
  EXPECT_TRUE(writer.lists().empty());
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

TEST(CompletionJson, WholeAnswer) {
  LogprobWriter writer(tokenizer(), true);
  writer.add({0, -std::numeric_limits<float>::infinity(), {}});
  const auto json = nlohmann::json::parse(completion_json(
      {"cmpl-1", "m", 7}, {{0, "Hello", &writer.lists(), engine::FinishReason::kLength}},
      {.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 1}));
  EXPECT_EQ(json.at("object"), "text_completion");
  const auto& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs").at(0), -9999.0);
  const auto& usage = json.at("usage");
  EXPECT_EQ(usage.at("total_tokens"), 11);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 4);
  EXPECT_EQ(usage.at("pagoda").at("device"), 4);
  EXPECT_EQ(usage.at("pagoda").at("computed"), 6);
}

TEST(CompletionJson, Events) {
  const CompletionHead head{"cmpl-1", "m", 7};
  const std::string event = chunk_event(head, {1, "a\nb", nullptr, std::nullopt}, true);
  ASSERT_TRUE(event.starts_with("data: {") && event.ends_with("}\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);  // one line, whatever the text has
  const auto json = nlohmann::json::parse(event.substr(6));
  EXPECT_TRUE(json.at("usage").is_null());
  EXPECT_TRUE(json.at("choices").at(0).at("finish_reason").is_null());
  EXPECT_EQ(json.at("choices").at(0).at("index"), 1);
  EXPECT_FALSE(
      nlohmann::json::parse(chunk_event(head, {0, "", nullptr, std::nullopt}, false).substr(6))
          .contains("usage"));
  EXPECT_TRUE(nlohmann::json::parse(usage_event(head, {}).substr(6)).at("choices").empty());
}

}  // namespace
}  // namespace pagoda::api
