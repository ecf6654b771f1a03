// What clients read: the JSON of whole answers and of events, in both dialects.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/api/chat_answer.h"
#include "server/api/completion_answer.h"
#include "tests/unit/server/api/byte_tokenizer.h"

namespace pagoda::api {
namespace {

using engine::FinishReason;
using engine::OutputDelta;

const ByteTokenizer& tokenizer() {
  static const ByteTokenizer instance(
      {"Hello", " wörld", "\xf0\x9f", "\x98", "\x8a", "<|end|>", "Hello", ""});
  return instance;
}

constexpr UsageTotals kUsage{
    .prompt_tokens = 10, .cached_tokens = 4, .cached_by_tier = {1, 0, 3}, .completion_tokens = 1};

CompletionRequest completion() {
  CompletionRequest request;
  Prompt prompt;
  prompt.ids = {0, 1};
  request.prompts.push_back(prompt);
  return request;
}

OutputDelta piece(std::string text, std::vector<TokenId> tokens) {
  OutputDelta delta;
  delta.text = std::move(text);
  delta.tokens = std::move(tokens);
  return delta;
}

OutputDelta last_piece(FinishReason reason) {
  OutputDelta delta;
  delta.finished = true;
  delta.reason = reason;
  return delta;
}

// The events of a stream as values; "[DONE]" as a string.
std::vector<Json> events(const std::string& stream) {
  std::vector<Json> list;
  size_t begin = 0;
  for (size_t end = 0; (end = stream.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
    const std::string line = stream.substr(begin, end - begin);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;  // one line, whatever the text has
    list.push_back(line == "data: [DONE]" ? Json("[DONE]") : Json::parse(line.substr(6)));
  }
  EXPECT_EQ(begin, stream.size());
  return list;
}

TEST(CompletionAnswer, Whole) {
  CompletionRequest request = completion();
  request.logprobs = true;
  CompletionAnswer answer({"cmpl-1", "m", 7}, request, tokenizer());
  EXPECT_EQ(answer.begin(0, {}), "");
  OutputDelta delta = piece("Hello", {0});
  delta.logprobs = {{0, -std::numeric_limits<float>::infinity(), {}, 1}};
  EXPECT_EQ(answer.add(0, std::move(delta)), "");
  EXPECT_EQ(answer.add(0, last_piece(FinishReason::kLength)), "");
  const Json json = Json::parse(answer.end(kUsage));
  EXPECT_EQ(json.at("object"), "text_completion");
  const Json& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "Hello");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_TRUE(choice.at("stop_reason").is_null());
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs").at(0), -9999.0);
  const Json& usage = json.at("usage");
  EXPECT_EQ(usage.at("total_tokens"), 11);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 4);
  EXPECT_EQ(usage.at("pagoda").at("device"), 1);
  EXPECT_EQ(usage.at("pagoda").at("ssd"), 3);
  EXPECT_EQ(usage.at("pagoda").at("computed"), 6);
}

TEST(CompletionAnswer, EchoWithBothListsOfLogprobs) {
  CompletionRequest request = completion();
  request.echo = request.logprobs = request.prompt_logprobs = true;
  request.sampling.n_logprobs = 1;
  request.sampling.n_prompt_logprobs = 2;
  CompletionAnswer answer({"cmpl-1", "m", 7}, request, tokenizer());
  EXPECT_EQ(answer.begin(0, {{1, -3.0F, {{0, -1.0F}, {2, -2.0F}}, 3}}), "");
  EXPECT_EQ(answer.add(0, last_piece(FinishReason::kLength)), "");
  const Json choice = Json::parse(answer.end(kUsage)).at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "Hello wörld");
  EXPECT_TRUE(choice.at("logprobs").at("token_logprobs").at(0).is_null());
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(1).size(), 2U);  // one, and the token
  const Json& list = choice.at("prompt_logprobs");
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1].at("1").at("rank"), 3);
  EXPECT_EQ(list[1].at("1").at("decoded_token"), " wörld");
  EXPECT_EQ(list[1].at("2").at("rank"), 2);
  EXPECT_EQ(list[1].at("2").at("decoded_token"), "bytes:\\xf0\\x9f");
}

TEST(CompletionAnswer, Events) {
  CompletionRequest request = completion();
  request.stream = request.include_usage = true;
  request.n = 2;
  CompletionAnswer answer({"cmpl-1", "m", 7}, request, tokenizer());
  std::string stream = answer.begin(1, {});
  stream += answer.add(1, piece("a\nb", {0}));
  stream += answer.add(1, piece("", {2}));  // half a character: nothing to say yet
  stream += answer.add(1, last_piece(FinishReason::kStop));
  stream += answer.end(kUsage);
  const std::vector<Json> list = events(stream);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0].at("choices").at(0).at("index"), 1);
  EXPECT_EQ(list[0].at("choices").at(0).at("text"), "a\nb");
  EXPECT_TRUE(list[0].at("choices").at(0).at("finish_reason").is_null());
  EXPECT_TRUE(list[0].at("usage").is_null());
  EXPECT_EQ(list[1].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(list[2].at("choices").empty());
  EXPECT_EQ(list[2].at("usage").at("total_tokens"), 11);
  EXPECT_EQ(list[3], "[DONE]");
}

TEST(CompletionAnswer, StopReasons) {
  CompletionRequest request = completion();
  request.stop = {"x", "END"};
  request.sampling.stop_ids = {3, 4};
  request.n_stop_token_ids = 1;  // the other one is the model's
  request.return_token_ids = true;
  request.n = 3;
  CompletionAnswer answer({"cmpl-1", "m", 7}, request, tokenizer());
  for (size_t i = 0; i < 3; ++i) {
    (void)answer.begin(i, {});
    OutputDelta delta = last_piece(FinishReason::kStop);
    delta.tokens = {0};
    if (i == 0) delta.matched_stop = 1;
    if (i == 1) delta.stop_token = 3;
    if (i == 2) delta.stop_token = 4;
    (void)answer.add(i, std::move(delta));
  }
  const Json choices = Json::parse(answer.end(kUsage)).at("choices");
  EXPECT_EQ(choices[0].at("stop_reason"), "END");
  EXPECT_EQ(choices[1].at("stop_reason"), 3);
  EXPECT_TRUE(choices[2].at("stop_reason").is_null());
  EXPECT_EQ(choices[0].at("token_ids"), Json({0}));
  EXPECT_EQ(choices[2].at("token_ids"), Json({0, 4}));
  EXPECT_EQ(choices[2].at("prompt_token_ids"), Json({0, 1}));
}

GenerationRequest chat() {
  GenerationRequest request;
  request.logprobs = true;
  request.sampling.n_logprobs = 1;
  return request;
}

// The parts of an emoji have bytes of their own, and names that are valid UTF-8.
TEST(ChatAnswer, WholeWithTheBytesOfParts) {
  ChatAnswer answer({"chatcmpl-1", "m", 7}, chat(), {false, "", {0, 1}}, tokenizer());
  (void)answer.begin(0, {});
  OutputDelta delta = piece("😊", {2, 3, 4});
  delta.logprobs = {{2, -0.5F, {{0, -0.25F}}, 2}, {3, -1.0F, {{3, -1.0F}}, 1}, {4, -1.0F, {}, 1}};
  (void)answer.add(0, std::move(delta));
  (void)answer.add(0, last_piece(FinishReason::kStop));
  const Json json = Json::parse(answer.end(kUsage));
  EXPECT_EQ(json.at("object"), "chat.completion");
  const Json& choice = json.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "😊");
  const Json& content = choice.at("logprobs").at("content");
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[0].at("bytes"), Json({240, 159}));
  EXPECT_EQ(content[1].at("bytes"), Json({152}));
  EXPECT_EQ(content[2].at("bytes"), Json({138}));
  EXPECT_EQ(content[0].at("top_logprobs").at(0).at("token"), "Hello");
  EXPECT_EQ(content[0].at("top_logprobs").at(0).at("bytes"), Json({72, 101, 108, 108, 111}));
}

TEST(ChatAnswer, Events) {
  GenerationRequest request = chat();
  request.stream = request.return_token_ids = true;
  ChatAnswer answer({"chatcmpl-1", "m", 7}, request, {false, "", {0, 1}}, tokenizer());
  std::string stream = answer.begin(0, {});
  OutputDelta half = piece("", {2});
  half.logprobs = {{2, -0.5F, {}, 1}};
  stream += answer.add(0, std::move(half));
  OutputDelta rest = piece("😊", {3, 4});
  rest.logprobs = {{3, -0.5F, {}, 1}, {4, -0.5F, {}, 1}};
  stream += answer.add(0, std::move(rest));
  OutputDelta last = last_piece(FinishReason::kStop);
  last.stop_token = 5;
  stream += answer.add(0, std::move(last));
  stream += answer.end(kUsage);
  const std::vector<Json> list = events(stream);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0].at("object"), "chat.completion.chunk");
  EXPECT_EQ(list[0].at("choices").at(0).at("delta"),
            Json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_TRUE(list[0].at("choices").at(0).at("logprobs").is_null());
  EXPECT_EQ(list[0].at("prompt_token_ids"), Json({0, 1}));
  EXPECT_EQ(list[1].at("choices").at(0).at("delta"), Json({{"content", "😊"}}));
  EXPECT_EQ(list[1].at("choices").at(0).at("token_ids"), Json({2, 3, 4}));
  EXPECT_EQ(list[1].at("choices").at(0).at("logprobs").at("content").size(), 3U);
  EXPECT_TRUE(list[1].at("choices").at(0).at("finish_reason").is_null());
  EXPECT_EQ(list[2].at("choices").at(0).at("delta"), Json::object());
  EXPECT_EQ(list[2].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(list[2].at("choices").at(0).at("token_ids"), Json({5}));
  EXPECT_FALSE(list[2].contains("usage"));
  EXPECT_EQ(list[3], "[DONE]");
}

TEST(ChatAnswer, UsageInEveryChunkWhereItIsWanted) {
  GenerationRequest request;
  request.stream = request.include_usage = request.continuous_usage = true;
  ChatAnswer answer({"chatcmpl-1", "m", 7}, request, {false, "", {0, 1}}, tokenizer());
  std::string stream = answer.begin(0, {});
  stream += answer.add(0, piece("a", {0}));
  stream += answer.add(0, piece("b", {0}));
  const std::vector<Json> list = events(stream);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].at("usage").at("total_tokens"), 2);
  EXPECT_EQ(list[2].at("usage").at("completion_tokens"), 2);
}

}  // namespace
}  // namespace pagoda::api
