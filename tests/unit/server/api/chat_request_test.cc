#include "server/api/chat_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

constexpr char kHi[] = R"([{"role": "user", "content": "hi"}])";

RequestLimits limits() { return {.n_vocab = 49152, .max_json_depth = 128, .max_choices = 256}; }

absl::StatusOr<ChatRequest> parse_messages(const std::string& messages) {
  return parse_chat("{\"messages\": " + messages + "}", limits());
}

absl::StatusOr<ChatRequest> parse_with(const std::string& members) {
  return parse_chat(std::string("{\"messages\": ") + kHi + ", " + members + "}", limits());
}

std::string param_of(const absl::Status& status) {
  const Json error = Json::parse(error_body(status)).at("error");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  return error.at("param").is_null() ? "" : error.at("param").get<std::string>();
}

TEST(ChatRequest, Defaults) {
  const auto request = parse_messages(kHi);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(request->has_max_tokens);
  EXPECT_TRUE(request->chat.add_generation_prompt);
  EXPECT_FALSE(request->chat.continue_final_message);
  EXPECT_FALSE(request->logprobs);
  EXPECT_EQ(request->sampling.n_logprobs, -1);
  EXPECT_EQ(to_text(request->chat.messages), R"([{"role":"user","content":"hi"}])");
}

TEST(ChatRequest, AllRolesAndForms) {
  const auto request = parse_messages(R"([
      {"role": "developer", "content": "d"},
      {"role": "system", "content": [{"type": "text", "text": "s"}]},
      {"role": "user", "name": "n", "content": ["plain", {"type": "text", "text": "x"}]},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"id": "3", "type": "function", "function": {"name": "h"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "ok"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}])");
  ASSERT_TRUE(request.ok()) << request.status();
  const Json& messages = request->chat.messages;
  EXPECT_EQ(to_text(messages[2]["content"]),
            R"([{"type":"text","text":"plain"},{"type":"text","text":"x"}])");
  EXPECT_EQ(to_text(messages[3]["tool_calls"][0]["function"]["arguments"]), R"({"z":1,"a":2})");
  EXPECT_EQ(to_text(messages[3]["tool_calls"][1]["function"]["arguments"]), "{}");
  EXPECT_EQ(to_text(messages[3]["tool_calls"][2]["function"]["arguments"]), "{}");
  EXPECT_EQ(to_text(messages[5]["content"]), R"([{"type":"text","text":"no"}])");
}

TEST(ChatRequest, RefusesMessagesWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "messages"},
      {"null", "messages"},
      {"{}", "messages"},
      {"\"hi\"", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"content": "x"}])", "messages[0].role"},
      {R"([{"role": "pirate", "content": "x"}])", "messages[0].role"},
      {R"([{"role": 5, "content": "x"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": null}])", "messages[0].content"},
      {R"([{"role": "assistant", "content": null}])", "messages[0].content"},
      {R"([{"role": "assistant", "tool_calls": []}])", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": [5]}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"text": "x"}]}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])",
       "messages[0].content"},
      {R"([{"role": "user", "content": "x"}, {"role": "user", "content": "x", "name": 1}])",
       "messages[1].name"},
      {R"([{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls[0]"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}])",
       "messages[0].tool_calls[0].function.arguments"}};
  for (const auto& [messages, field] : cases) {
    const auto request = parse_messages(messages);
    ASSERT_FALSE(request.ok()) << messages;
    EXPECT_EQ(param_of(request.status()), field) << request.status();
  }
  EXPECT_EQ(param_of(parse_chat("{}", limits()).status()), "messages");
}

// The text of the arguments is a JSON document of its own, so the body's depth says nothing of it.
TEST(ChatRequest, ArgumentsHaveTheBodysLimitOfNesting) {
  const auto with_depth = [](size_t depth) {
    const std::string arguments =
        "{\\\"x\\\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
    return parse_messages(
        R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")" +
        arguments + "\"}}]}]");
  };
  EXPECT_TRUE(with_depth(60).ok());
  for (const size_t depth : {size_t{200}, size_t{100'000}}) {
    const auto refused = with_depth(depth);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(param_of(refused.status()), "messages[0].tool_calls[0].function.arguments");
  }
}

TEST(ChatRequest, AllFields) {
  const auto request = parse_with(
      R"("model": "m", "max_completion_tokens": 7, "max_tokens": 9, "logprobs": true,
         "top_logprobs": 3, "presence_penalty": -2, "frequency_penalty": 2,
         "repetition_penalty": 1.5, "allowed_token_ids": [9, 3, 9], "bad_words": ["x", " y"],
         "prompt_logprobs": 2, "truncate_prompt_tokens": -1, "return_token_ids": true,
         "tools": [{"type": "function", "function": {"name": "f", "b": 1, "a": 2}}],
         "tool_choice": "none", "documents": [{"text": "t"}],
         "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low",
         "continue_final_message": true, "best_of": 2, "n": 2, "parallel_tool_calls": true)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_TRUE(request->has_max_tokens);
  EXPECT_TRUE(request->logprobs);
  EXPECT_EQ(request->sampling.n_logprobs, 3);
  EXPECT_EQ(request->sampling.presence_penalty, -2);
  EXPECT_EQ(request->sampling.frequency_penalty, 2);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request->sampling.allowed_ids, (std::vector<TokenId>{3, 9}));
  EXPECT_EQ(request->bad_words, (std::vector<std::string>{"x", " y"}));
  EXPECT_EQ(request->sampling.n_prompt_logprobs, 2);
  EXPECT_EQ(request->truncate_prompt_tokens, -1);
  EXPECT_TRUE(request->return_token_ids);
  EXPECT_EQ(to_text(request->chat.tools[0]["function"]), R"({"name":"f","b":1,"a":2})");
  EXPECT_EQ(request->chat.documents.size(), 1U);
  EXPECT_EQ(to_text(request->chat.kwargs), R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_TRUE(request->chat.continue_final_message);
  EXPECT_FALSE(request->chat.add_generation_prompt);
  EXPECT_TRUE(request->unknown_fields.empty());
}

TEST(ChatRequest, RefusesWithTheFieldsName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"max_tokens", "0"},
      {"max_tokens", "-5"},
      {"max_completion_tokens", "0"},
      {"max_completion_tokens", "9223372036854775808"},
      {"min_tokens", "-1"},
      {"logprobs", "5"},
      {"top_logprobs", "21"},
      {"top_logprobs", "2"},  // without logprobs
      {"n", "0"},
      {"n", "1.5"},
      {"temperature", "-0.1"},
      {"temperature", "\"0.5\""},
      {"temperature", "true"},
      {"temperature", "1e999"},
      {"top_p", "1.0001"},
      {"min_p", "1.1"},
      {"presence_penalty", "2.5"},
      {"frequency_penalty", "2.5"},
      {"seed", "1e30"},
      {"best_of", "2"},
      {"tools", R"([{"type": "function", "function": {"name": "f"}}])"},
      {"tools", "{}"},
      {"tools", "[1]"},
      {"tool_choice", "\"required\""},
      {"functions", "[]"},
      {"audio", "{}"},
      {"modalities", "[\"audio\"]"},
      {"echo", "true"},
      {"chat_template", "\"x\""},
      {"chat_template_kwargs", "[]"},
      {"chat_template_kwargs", R"({"messages": []})"},
      {"continue_final_message", "1"},
      {"continue_final_message", R"(true, "add_generation_prompt": true)"},
      {"response_format", R"({"type": "json_object"})"},
      {"stream_options", R"({"include_usage": true})"},
      {"prompt_logprobs", R"(1, "stream": true)"}};
  for (const auto& [field, value] : cases) {
    const auto request = parse_with("\"" + field + "\": " + value);
    ASSERT_FALSE(request.ok()) << field << " = " << value;
    EXPECT_EQ(param_of(request.status()), field) << request.status();
  }
}

TEST(ChatRequest, DefaultsOfTheModelCountWhereNothingIsSaid) {
  RequestLimits with_defaults = limits();
  const auto defaults = parse_generation_config(
      R"({"temperature": 0.25, "top_k": 5, "top_p": 0.5, "repetition_penalty": 1.25,
          "max_new_tokens": 33, "eos_token_id": [1, 2], "do_sample": true})",
      100);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->end_ids, (std::vector<TokenId>{1, 2}));
  with_defaults.defaults = *defaults;
  const auto plain = parse_chat(std::string("{\"messages\": ") + kHi + "}", with_defaults);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->sampling.temperature, 0.25F);
  EXPECT_EQ(plain->sampling.top_k, 5);
  EXPECT_EQ(plain->sampling.top_p, 0.5F);
  EXPECT_EQ(plain->sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(plain->max_tokens, 33);
  EXPECT_FALSE(plain->has_max_tokens);
  EXPECT_EQ(plain->sampling.stop_ids, (std::vector<TokenId>{1, 2}));
  const auto said = parse_chat(std::string("{\"messages\": ") + kHi +
                                   R"(, "temperature": 1, "top_k": 0, "top_p": 1,
                                        "repetition_penalty": 1})",
                               with_defaults);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(said->sampling.temperature, 1);
  EXPECT_EQ(said->sampling.top_k, 0);
  EXPECT_EQ(said->sampling.repetition_penalty, 1);
  EXPECT_FALSE(parse_generation_config(R"({"temperature": -1})", 100).ok());
  EXPECT_FALSE(parse_generation_config(R"({"eos_token_id": 100})", 100).ok());
}

}  // namespace
}  // namespace pagoda::api
