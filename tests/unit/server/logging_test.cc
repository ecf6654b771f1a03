#include "server/logging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/api/request_log.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(LogFormat format, std::string_view message) {
  const spdlog::details::log_msg record("pagoda", spdlog::level::warn,
                                        spdlog::string_view_t(message.data(), message.size()));
  spdlog::memory_buf_t line;
  make_log_formatter(format)->format(record, line);
  return {line.data(), line.size()};
}

TEST(LogFormatTest, JsonLinesAreOneValidObjectWhateverTheMessage) {
  const std::vector<std::string> messages = {"plain",
                                             "\"quoted\" \\ back",
                                             "two\nlines\r\n",
                                             std::string("nul\0inside", 10),
                                             "\x1b[31mred",
                                             "bad \xff\xfe utf-8",
                                             "cut \xe2\x82",
                                             "{\"level\":\"error\"}",
                                             ""};
  for (const std::string& message : messages) {
    const std::string line = line_of(LogFormat::kJson, message);
    ASSERT_EQ(line.find('\n'), line.size() - 1) << line;
    const Json record = Json::parse(line);
    EXPECT_EQ(record.size(), 3U);
    EXPECT_EQ(record["level"], "warning");
    EXPECT_EQ(record["ts"].get<std::string>().size(),
              std::string("2026-01-31T12:00:00.123Z").size());
    EXPECT_TRUE(record["msg"].is_string());
  }
  EXPECT_EQ(Json::parse(line_of(LogFormat::kJson, messages[2]))["msg"], "two\nlines\r\n");
}

TEST(LogFormatTest, TextLinesCannotBeForged) {
  const std::string line =
      line_of(LogFormat::kText, "a\n2026-01-31 12:00:00.000 error b\x1b[2J\x7f");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(line.find("a\\x0a2026"), std::string::npos) << line;
  EXPECT_NE(line.find("b\\x1b[2J\\x7f"), std::string::npos) << line;
}

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(fds_), 0); }
  ~Pipe() {
    close_read();
    ::close(fds_[1]);
  }
  void close_read() {
    if (fds_[0] >= 0) ::close(fds_[0]);
    fds_[0] = -1;
  }
  int write_end() const { return fds_[1]; }
  std::string read_some() {
    std::string text(1 << 17, '\0');
    text.resize(
        static_cast<size_t>(std::max<ssize_t>(0, ::read(fds_[0], text.data(), text.size()))));
    return text;
  }

 private:
  int fds_[2] = {-1, -1};
};

std::unique_ptr<spdlog::logger> logger_to(int descriptor) {
  auto sink = make_descriptor_sink(descriptor);
  sink->set_formatter(make_log_formatter(LogFormat::kJson));
  return std::make_unique<spdlog::logger>("pagoda", sink);
}

// Nobody reads: the pipe fills, and the rest is dropped instead of waited for.
TEST(LogSinkTest, AFullPipeIsNotWaitedFor) {
  Pipe pipe;
  const auto logger = logger_to(pipe.write_end());
  const int64_t before = n_dropped_log_lines();
  for (int i = 0; i < 2000; ++i) logger->info("{}", std::string(100, 'x'));
  const int64_t n_dropped = n_dropped_log_lines() - before;
  EXPECT_GT(n_dropped, 0);
  EXPECT_LT(n_dropped, 2000);
  std::string text = pipe.read_some();
  logger->info("and on");
  text += pipe.read_some();
  size_t n_lines = 0;
  for (size_t at = 0; at < text.size(); ++n_lines) {
    const size_t end = text.find('\n', at);
    ASSERT_NE(end, text.npos);
    EXPECT_TRUE(Json::accept(text.substr(at, end - at)));
    at = end + 1;
  }
  EXPECT_EQ(static_cast<int64_t>(n_lines), 2000 - n_dropped + 2);
  EXPECT_NE(text.find(std::to_string(n_dropped) + " log lines could not be written"), text.npos);
}

TEST(LogSinkTest, WhatCannotBeWrittenIsDropped) {
  set_up_logging("off", LogFormat::kText);  // which ignores SIGPIPE
  const int64_t before = n_dropped_log_lines();
  Pipe pipe;
  pipe.close_read();
  logger_to(pipe.write_end())->info("nobody reads");
  const int full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  logger_to(full)->info("no room");
  ::close(full);
  logger_to(full)->info("not open");
  EXPECT_EQ(n_dropped_log_lines() - before, 3);
}

class RequestLogTest : public testing::Test {
 protected:
  api::RequestLog make(bool log_prompts) {
    return api::RequestLog(
        clock_,
        [this](spdlog::level::level_enum, const std::string& text, const std::string& msg,
               const Json& fields) {
          texts_.push_back(text);
          msgs_.push_back(msg);
          fields_.push_back(fields);
        },
        log_prompts);
  }
  base::FakeClock clock_;
  std::vector<std::string> texts_;
  std::vector<std::string> msgs_;
  std::vector<Json> fields_;
};

TEST_F(RequestLogTest, AFloodOfRefusalsIsCounted) {
  api::RequestLog log = make(false);
  for (int i = 0; i < 1000; ++i) {
    log.answer({.id = "a", .route = "/v1/completions", .status = 429});
    clock_.advance_us(1000);
  }
  log.answer({.id = "b", .route = "/v1/completions", .status = 400});
  const auto most = static_cast<size_t>(api::RequestLog::kMostErrors);
  ASSERT_EQ(texts_.size(), most + 1);
  EXPECT_EQ(fields_.back()["status"], 400);
  clock_.advance_us(api::RequestLog::kWindowUs);
  for (int i = 0; i < 50; ++i) log.answer({.id = "c", .route = "/v1/completions", .status = 200});
  ASSERT_EQ(texts_.size(), most + 2 + 50);  // what goes well is not limited
  EXPECT_EQ(msgs_[most + 1], "requests not shown");
  EXPECT_EQ(fields_[most + 1]["count"], 1000 - api::RequestLog::kMostErrors);
  EXPECT_NE(texts_[most + 1].find("980 more"), std::string::npos);
  for (int i = 0; i < 25; ++i) log.answer({.id = "d", .route = "/x", .status = 429});
  log.flush();
  EXPECT_EQ(fields_.back()["count"], 5);
}

TEST_F(RequestLogTest, FieldsOfAnAnswer) {
  api::RequestLog log = make(false);
  log.prompt("a", "secret", {});
  EXPECT_TRUE(texts_.empty());
  log.answer({.id = "a",
              .route = "/v1/completions",
              .n = 2,
              .prompt_tokens = 7,
              .cached_tokens = 3,
              .output_tokens = 5,
              .finish_reason = "length",
              .ttft_us = 1500,
              .total_us = 20'000});
  EXPECT_EQ(fields_[0].dump(),
            R"({"id":"a","route":"/v1/completions","status":200,"n":2,"prompt_tokens":7,)"
            R"("cached_tokens":3,"completion_tokens":5,"ttft_ms":1.5,"total_ms":20.0,)"
            R"("finish_reason":"length"})");
  EXPECT_EQ(texts_[0],
            "a /v1/completions 200 prompt=7 cached=3 output=5 ttft_ms=1.5 total_ms=20.0 "
            "finish=length");
}

TEST_F(RequestLogTest, PromptsAreCutBetweenCharacters) {
  api::RequestLog log = make(true);
  std::string text(api::RequestLog::kPromptBytes - 1, 'x');
  text += "\xe2\x82\xac and more";
  const std::vector<model::TokenId> ids(1000, 5);
  log.prompt("a", text, ids);
  EXPECT_EQ(fields_[0]["prompt"].get<std::string>().size(), api::RequestLog::kPromptBytes - 1);
  EXPECT_EQ(fields_[0]["prompt_ids"].size(), api::RequestLog::kPromptIds);
  EXPECT_EQ(fields_[0]["prompt_bytes"], text.size());
  EXPECT_EQ(fields_[0]["prompt_tokens"], 1000);
}

}  // namespace
}  // namespace pagoda
