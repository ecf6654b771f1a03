#include "server/api/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

using json = Json;

const RequestLimits kLimits{.n_vocab = 49152, .max_json_depth = 128, .max_choices = 256};

absl::StatusOr<CompletionRequest> parse(const std::string& body) {
  return parse_completion(body, kLimits);
}

// A body with a prompt and these members.
absl::StatusOr<CompletionRequest> parse_with(const std::string& members) {
  return parse("{\"prompt\": \"hi\"" + (members.empty() ? "" : ", " + members) + "}");
}

std::string param_of(const absl::Status& status) {
  const json error = json::parse(error_body(status)).at("error");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_TRUE(error.at("message").is_string());
  EXPECT_FALSE(error.at("message").get<std::string>().empty());
  return error.at("param").is_null() ? "" : error.at("param").get<std::string>();
}

TEST(CompletionRequest, Defaults) {
  const auto request = parse_with("");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->prompts.size(), 1U);
  EXPECT_EQ(request->max_tokens, 16);
  EXPECT_FALSE(request->has_max_tokens);
  EXPECT_FALSE(request->has_seed);
  EXPECT_EQ(request->n, 1);
  EXPECT_EQ(request->sampling.temperature, 1);
  EXPECT_EQ(request->sampling.top_k, 0);
  EXPECT_EQ(request->sampling.n_logprobs, -1);
  EXPECT_TRUE(request->add_special_tokens);
  EXPECT_TRUE(request->skip_special_tokens);
  EXPECT_FALSE(request->stream);
}

TEST(CompletionRequest, MinTokensRaisesTheDefaultOfMaxTokens) {
  const auto request = parse_with(R"("min_tokens": 17)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->sampling.min_tokens, 17);
  EXPECT_EQ(request->max_tokens, 17);
  EXPECT_EQ(parse_with(R"("min_tokens": 3)")->max_tokens, 16);
  const auto refused = parse_with(R"("min_tokens": 17, "max_tokens": 16)");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(param_of(refused.status()), "min_tokens");
}

// The first item of each list is wrong too, and the length is what is said.
TEST(CompletionRequest, ListsThatAreTooLongAreRefusedBeforeTheyAreRead) {
  RequestLimits limits = kLimits;
  limits.max_choices = 3;
  limits.max_model_len = 5;
  EXPECT_TRUE(parse_completion(R"({"prompt": ["a", "b", "c"]})", limits).ok());
  EXPECT_TRUE(parse_completion(R"({"prompt": [1, 2, 3, 4, 5]})", limits).ok());
  const auto many = parse_completion(R"({"prompt": ["", 1, "c", "d"]})", limits);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(param_of(many.status()), "prompt");
  EXPECT_NE(error_body(many.status()).find("holds 4 prompts"), std::string::npos);
  for (const char* body :
       {R"({"prompt": [-1, 2, 3, 4, 5, 6]})", R"({"prompt": [[1], [-1, 2, 3, 4, 5, 6]]})"}) {
    const auto refused = parse_completion(body, limits);
    ASSERT_FALSE(refused.ok());
    const json error = json::parse(error_body(refused.status())).at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded") << body;
    EXPECT_EQ(error.at("param"), "prompt");
  }
}

TEST(CompletionRequest, NullMeansDefault) {
  const auto request = parse_with(
      R"("max_tokens": null, "temperature": null, "stop": null, "seed": null, "logprobs": null,
         "stream": null, "stream_options": null, "logit_bias": null, "n": null, "suffix": null,
         "model": null, "user": null, "response_format": null)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->max_tokens, 16);
  EXPECT_EQ(request->sampling.temperature, 1);
  EXPECT_FALSE(request->has_seed);
}

TEST(CompletionRequest, AllFields) {
  const auto request = parse_with(
      R"("model": "m", "max_tokens": 5, "min_tokens": 2, "temperature": 0.5, "top_k": 7,
         "top_p": 0.25, "min_p": 0.125, "n": 3, "seed": -1, "stop": ["a", "b"],
         "stop_token_ids": [1, 2], "ignore_eos": true, "logit_bias": {"5": -100, "3": 100},
         "logprobs": 2, "echo": true, "stream": true, "stream_options": {"include_usage": true},
         "user": "u", "cache_salt": "s", "priority": -4, "session_id": "c",
         "add_special_tokens": false, "skip_special_tokens": false,
         "include_stop_str_in_output": true, "best_of": 3)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_EQ(request->sampling.min_tokens, 2);
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 7);
  EXPECT_EQ(request->sampling.top_p, 0.25F);
  EXPECT_EQ(request->sampling.min_p, 0.125F);
  EXPECT_EQ(request->n, 3);
  EXPECT_TRUE(request->has_seed);
  EXPECT_EQ(request->sampling.seed, ~uint64_t{0});
  EXPECT_EQ(request->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request->sampling.stop_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(request->sampling.ignore_eos);
  ASSERT_EQ(request->sampling.logit_bias.size(), 2U);
  EXPECT_EQ(request->sampling.logit_bias[0].token, 3);
  EXPECT_EQ(request->sampling.logit_bias[1].value, -100);
  EXPECT_EQ(request->sampling.n_logprobs, 2);
  EXPECT_EQ(request->sampling.n_prompt_logprobs, request->sampling.n_logprobs);
  EXPECT_TRUE(request->echo);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_EQ(request->salt, "s");
  EXPECT_EQ(request->session, "c");
  EXPECT_EQ(request->tenant, "u");
  EXPECT_EQ(request->priority, -4);
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_TRUE(request->include_stop_str_in_output);
  EXPECT_TRUE(request->unknown_fields.empty());
}

TEST(CompletionRequest, PromptForms) {
  const auto texts = parse(R"({"prompt": ["a", "", "c"]})");
  ASSERT_TRUE(texts.ok());
  EXPECT_EQ(texts->prompts.size(), 3U);
  EXPECT_EQ(texts->prompts[2].text, "c");
  const auto ids = parse(R"({"prompt": [1, 2, 49151]})");
  ASSERT_TRUE(ids.ok());
  ASSERT_EQ(ids->prompts.size(), 1U);
  EXPECT_EQ(ids->prompts[0].ids, (std::vector<TokenId>{1, 2, 49151}));
  const auto lists = parse(R"({"prompt": [[1, 2], [3]]})");
  ASSERT_TRUE(lists.ok());
  EXPECT_EQ(lists->prompts.size(), 2U);
}

TEST(CompletionRequest, BadPrompts) {
  for (const char* prompt : {"[]", "[[]]", "[[1], []]", "5", "true", "{}", "[49152]", "[-1]",
                             "[1.5]", "[true]", "[\"a\", 1]", "[1, \"a\"]", "[[1], \"a\"]",
                             "[[\"a\"]]", "[[[1]]]", "[null]", "[9223372036854775808]", "null"}) {
    const auto request = parse(std::string("{\"prompt\": ") + prompt + "}");
    ASSERT_FALSE(request.ok()) << prompt;
    EXPECT_EQ(param_of(request.status()), "prompt") << prompt;
  }
  EXPECT_EQ(param_of(parse("{}").status()), "prompt");
}

TEST(CompletionRequest, AcceptsEdgeValues) {
  for (const char* members :
       {R"("temperature": 0)",
        R"("temperature": 1e-12)",
        R"("top_p": 0)",
        R"("top_p": 1e-9)",
        R"("min_p": 1.0)",
        R"("top_k": -1)",
        R"("top_k": 0)",
        R"("top_k": 491520)",
        R"("top_k": 9223372036854775807)",
        R"("seed": -1)",
        R"("seed": 0)",
        R"("seed": 9223372036854775807)",
        R"("seed": -9223372036854775808)",
        R"("n": 128)",
        R"("max_tokens": 16.0)",
        R"("max_tokens": 0, "echo": true)",
        R"("logprobs": 0)",
        R"("logprobs": 20)",
        R"("stop": "x")",
        R"("stop": [])",
        R"("logit_bias": {})",
        R"("presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1)",
        R"("suffix": "")",
        R"("response_format": {"type": "text"})",
        R"("stream": true, "stream_options": {})",
        R"("anything": {"goes": [1]})"}) {
    const auto request = parse_with(members);
    EXPECT_TRUE(request.ok()) << members << ": " << request.status();
  }
  EXPECT_EQ(parse_with(R"("top_k": -1)")->sampling.top_k, 0);
  EXPECT_EQ(parse_with(R"("top_k": 9223372036854775807)")->sampling.top_k, INT32_MAX);
}

TEST(CompletionRequest, RefusesWithTheFieldsName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"temperature", "-0.1"},
      {"temperature", "\"0.5\""},
      {"temperature", "true"},
      {"temperature", "1e999"},
      {"temperature", "101"},
      {"temperature", "[1]"},
      {"top_p", "1.0001"},
      {"top_p", "-0.1"},
      {"min_p", "1.1"},
      {"min_p", "-0.1"},
      {"top_k", "-2"},
      {"top_k", "1.5"},
      {"top_k", "\"5\""},
      {"n", "0"},
      {"n", "-1"},
      {"n", "1.5"},
      {"n", "129"},
      {"n", "true"},
      {"seed", "1e30"},
      {"seed", "9223372036854775808"},
      {"seed", "\"1\""},
      {"seed", "0.5"},
      {"max_tokens", "0"},
      {"max_tokens", "-5"},
      {"max_tokens", "9223372036854775808"},
      {"max_tokens", "1e300"},
      {"max_tokens", "\"5\""},
      {"max_tokens", "2.5"},
      {"min_tokens", "1.5"},
      {"min_tokens", "-1"},
      {"stop", "\"\""},
      {"stop", "[\"\"]"},
      {"stop", "[1]"},
      {"stop", "5"},
      {"stop",
       "[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
       "\"a\",\"a\",\"a\",\"a\"]"},
      {"stop", "\"" + std::string(5000, 'x') + "\""},
      {"stop_token_ids", "[49152]"},
      {"stop_token_ids", "5"},
      {"stop_token_ids", "[-1]"},
      {"logit_bias", "[]"},
      {"logit_bias", "{\"x\": 1}"},
      {"logit_bias", "{\"49152\": 1}"},
      {"logit_bias", "{\"-1\": 1}"},
      {"logit_bias", "{\"1.0\": 1}"},
      {"logit_bias", "{\"1\": 100.5}"},
      {"logit_bias", "{\"1\": -101}"},
      {"logit_bias", "{\"1\": \"5\"}"},
      {"logit_bias", "{\"1\": null}"},
      {"logit_bias", "{\"\": 1}"},
      {"logprobs", "21"},
      {"logprobs", "-1"},
      {"logprobs", "true"},
      {"echo", "1"},
      {"stream", "\"true\""},
      {"ignore_eos", "0"},
      {"stream_options", "{\"include_usage\": true}"},  // without stream
      {"model", "5"},
      {"user", "5"},
      {"cache_salt", "[]"},
      {"priority", "2147483648"},
      {"session_id", "\"" + std::string(2000, 's') + "\""},
      {"suffix", "\"end\""},
      {"best_of", "2"},
      {"presence_penalty", "2.5"},
      {"frequency_penalty", "-2.5"},
      {"repetition_penalty", "0"},
      {"repetition_penalty", "-1"},
      {"use_beam_search", "true"},
      {"response_format", "{\"type\": \"json_object\"}"},
      {"guided_regex", "\"a\""},
      {"bad_words", "[\"\"]"},
      {"bad_words", "[1]"},
      {"bad_words", "\"x\""},
      {"allowed_token_ids", "[]"},
      {"allowed_token_ids", "[49152]"},
      {"allowed_token_ids", "{}"},
      {"prompt_logprobs", "21"},
      {"prompt_logprobs", "-1"},
      {"truncate_prompt_tokens", "0"},
      {"truncate_prompt_tokens", "-2"},
      {"return_token_ids", "1"}};
  for (const auto& [field, value] : cases) {
    const auto request = parse_with("\"" + field + "\": " + value);
    ASSERT_FALSE(request.ok()) << field << " = " << value.substr(0, 80);
    EXPECT_EQ(param_of(request.status()), field) << value.substr(0, 80);
  }
}

TEST(CompletionRequest, StreamOptionsMustBeAnObject) {
  EXPECT_EQ(param_of(parse_with(R"("stream": true, "stream_options": 1)").status()),
            "stream_options");
  EXPECT_EQ(
      param_of(parse_with(R"("stream": true, "stream_options": {"include_usage": 1})").status()),
      "stream_options");
}

TEST(CompletionRequest, BoundsTheAnswersOfOneRequest) {
  EXPECT_TRUE(parse(R"({"prompt": ["a", "b"], "n": 128})").ok());
  EXPECT_EQ(param_of(parse(R"({"prompt": ["a", "b", "c"], "n": 128})").status()), "n");
}

TEST(CompletionRequest, NamesUnknownFieldsAndDropsThem) {
  const auto request = parse_with(R"("one": [1, {"model": 5}], "two": {"n": -1}, "seed": 4)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->unknown_fields, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(request->sampling.seed, 4U);
}

}  // namespace
}  // namespace pagoda::api
