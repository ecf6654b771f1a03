// The small parts of the client that only turn one text into another.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/check.h"
#include "server/client/bench_result.h"
#include "server/client/chat.h"
#include "server/client/open_ai.h"
#include "server/client/prompts.h"
#include "server/client/units.h"
#include "server/client/url.h"

namespace pagoda::client {
namespace {

TEST(Url, Forms) {
  const auto plain = parse_url("http://127.0.0.1:8000");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, 8000);
  EXPECT_EQ(plain->path, "");
  EXPECT_EQ(parse_url("http://h")->port, 80);
  EXPECT_EQ(parse_url("http://h/")->path, "");
  EXPECT_EQ(parse_url("http://h:1/v1/")->path, "");
  EXPECT_EQ(parse_url("http://h:1/api/v1")->path, "/api");
  const auto ipv6 = parse_url("http://[::1]:8000");
  ASSERT_TRUE(ipv6.ok()) << ipv6.status();
  EXPECT_EQ(ipv6->host, "::1");
  EXPECT_EQ(ipv6->text(), "http://[::1]:8000");
  EXPECT_EQ(parse_url("http://[::1]")->port, 80);
}

TEST(Url, WhatIsNoAddress) {
  for (const char* bad :
       {"", "127.0.0.1:8000", "http://", "http://:80", "ftp://h", "http://h:0", "http://h:65536",
        "http://h:x", "http://h:", "http://u@h", "http://h/?a", "http://h /", "http://[::1",
        "http://[::1]x", "http://h\r\nX: y", "http://h/\x1b"}) {
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
  }
  EXPECT_NE(base::message_of(parse_url("https://h").status()).find("https is not spoken"),
            std::string::npos);
  EXPECT_FALSE(check_api_key("a b").ok());
  EXPECT_FALSE(check_api_key("a\r\nX: y").ok());
  EXPECT_TRUE(check_api_key("sk-1").ok());
}

TEST(OpenAi, StreamEvents) {
  const auto chat = parse_stream_event(
      R"({"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "Hi");
  EXPECT_EQ(chat->finish_reason, "");
  EXPECT_FALSE(chat->usage.has_value());
  const auto plain =
      parse_stream_event(R"({"choices":[{"text":"ho","finish_reason":"length"}],"usage":null})");
  EXPECT_EQ(plain->text, "ho");
  EXPECT_EQ(plain->finish_reason, "length");
  const auto last =
      parse_stream_event(R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,)"
                         R"("prompt_tokens_details":{"cached_tokens":3}}})");
  ASSERT_TRUE(last->usage.has_value());
  EXPECT_EQ(last->usage->prompt_tokens, 5);
  EXPECT_EQ(last->usage->completion_tokens, 2);
  EXPECT_EQ(last->usage->cached_tokens, 3);
  EXPECT_EQ(parse_stream_event(R"({"usage":{"prompt_tokens_details":null}})")->usage->cached_tokens,
            -1);
  const auto absurd = parse_stream_event(
      R"({"usage":{"prompt_tokens":18446744073709551615,"completion_tokens":-5}})");
  EXPECT_EQ(absurd->usage->prompt_tokens, 0);
  EXPECT_EQ(absurd->usage->completion_tokens, 0);
  EXPECT_TRUE(parse_stream_event("[DONE]")->is_end);
  EXPECT_EQ(parse_stream_event(R"({"error":{"message":"no"}})")->error, "no");
  EXPECT_EQ(parse_stream_event(R"({"error":"no"})")->error, "no");
}

TEST(OpenAi, EventsThatAreNone) {
  for (const char* bad : {"", "x", "[1]", "\"a\"", "{", "null", "\xFF"}) {
    EXPECT_FALSE(parse_stream_event(bad).ok()) << bad;
  }
  // Of the wrong types, yet objects: read as if the field were not there.
  for (const char* odd :
       {R"({"choices":{}})", R"({"choices":[1]})", R"({"choices":[{"delta":"x"}]})",
        R"({"choices":[{"text":5}]})", R"({"usage":[]})", R"({"usage":{"prompt_tokens":"x"}})"}) {
    const auto event = parse_stream_event(odd);
    ASSERT_TRUE(event.ok()) << odd;
    EXPECT_EQ(event->text, "");
  }
  EXPECT_EQ(error_message(R"({"error":{"message":"too long","code":400}})"), "too long");
  EXPECT_EQ(error_message("<html>"), "<html>");
  EXPECT_LT(error_message(std::string(100'000, 'x')).size(), 1000U);
}

TEST(Prompts, LengthsByACounterThatAddsATokenAtTheBegin) {
  const auto words = [](const std::string& text) { return 1 + std::ranges::count(text, ' ') + 1; };
  // Words with an "s" are two tokens.
  const CountTokens count = [&](const std::string& text) {
    return words(text) + std::ranges::count(text, 's');
  };
  Prompts prompts(20, 1, count);
  EXPECT_TRUE(prompts.is_exact());
  std::set<std::string> all;
  for (int i = 0; i < 100; ++i) {
    const std::string prompt = prompts.next();
    EXPECT_EQ(count(prompt), 20) << prompt;
    EXPECT_TRUE(all.insert(prompt).second);
  }
  EXPECT_FALSE(Prompts(1, 1, count).is_exact());  // "the" has two already
  EXPECT_EQ(Prompts(1, 1, count).next(), "the");
}

TEST(Prompts, WithoutACounterWordsCount) {
  const CountTokens nobody = [](const std::string&) { return std::nullopt; };
  Prompts prompts(20, 1, nobody);
  EXPECT_FALSE(prompts.is_exact());
  EXPECT_EQ(std::ranges::count(prompts.next(), ' '), 19);
  EXPECT_EQ(Prompts(20, 7, nobody).next(), Prompts(20, 7, nobody).next());
  EXPECT_NE(Prompts(20, 7, nobody).next(), Prompts(20, 8, nobody).next());
}

TEST(Units, Texts) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(23'040), "22.5 KiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(bytes_text(int64_t{6} << 30), "6.0 GiB");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(134'515'008), "134.5 M");
  EXPECT_EQ(count_text(999'999), "1.0 M");
}

TEST(Units, NothingThatATerminalObeys) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\r\n\tc\x7f"), "a[31mb\n\tc");
  EXPECT_EQ(printable("\xC2\x9b"
                      "1m\xC3\xA4\xE2\x82\xAC"),
            "1m\xC3\xA4\xE2\x82\xAC");
}

TEST(ChatLine, CommandsAndMessages) {
  const auto is = [](std::string_view line, std::string_view command, std::string_view argument) {
    const ChatLine parsed = parse_chat_line(line);
    return parsed.command == command && parsed.argument == argument;
  };
  EXPECT_TRUE(is("hello /save x", "", "hello /save x"));
  EXPECT_TRUE(is("/save  notes.md ", "save", "notes.md"));
  EXPECT_TRUE(is("/system Be brief.\nVery.", "system", "Be brief.\nVery."));
  EXPECT_TRUE(is("/quit", "quit", ""));
  EXPECT_TRUE(is("//etc/passwd", "", "/etc/passwd"));
  EXPECT_TRUE(is("/", "", "/"));
  EXPECT_TRUE(is("", "", ""));
}

TEST(BenchResult, JsonHasWhatTheTextHas) {
  BenchResult result;
  result.server = "http://h:1";
  result.route = "/v1/completions";
  result.seconds = 2;
  result.n_ok = 4;
  result.n_failed = 1;
  result.errors["status 429"] = {1, "busy\x1b"};
  result.output_tokens = 100;
  result.prompt_tokens = 50;
  for (const double value : {0.1, 0.2, 0.3, 0.4}) result.first_token.add(value);
  const std::string text = bench_text({}, result);
  EXPECT_NE(text.find("4 ok, 1 failed"), std::string::npos);
  EXPECT_NE(text.find("1 status 429: busy\n"), std::string::npos);
  EXPECT_NE(text.find("50.0 output tokens a second, 25.0 of prompts, 2.00 requests"),
            std::string::npos);
  EXPECT_NE(text.find("first token          250.0 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("none measured"), std::string::npos);
  const std::string json = bench_json({}, result);
  EXPECT_NE(json.find("\"output_tokens\": 50.0"), std::string::npos);
  EXPECT_NE(json.find("\"status 429\""), std::string::npos);
}

}  // namespace
}  // namespace pagoda::client
