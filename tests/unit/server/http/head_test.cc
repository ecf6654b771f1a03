#include "server/http/head.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace pagoda::http {
namespace {

using Result = HeadScanner::Result;
using namespace std::string_view_literals;

TEST(HeadScanner, EndsWithTheEmptyLine) {
  HeadScanner scanner(1000, 10);
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\nX-Request-ID: \tabc \r\n\r\n";
  EXPECT_EQ(scanner.scan(head + "GET /next"), Result::kComplete);
  EXPECT_EQ(scanner.begin(), 0U);
  EXPECT_EQ(scanner.end(), head.size());
  EXPECT_EQ(scanner.request_id(), "abc");
}

TEST(HeadScanner, BytesMayComeOneByOne) {
  const std::string head = "\r\n\r\nPOST /a HTTP/1.1\r\nHost: x\r\nA:\r\n\r\n";
  HeadScanner scanner(1000, 10);
  for (size_t n = 1; n < head.size(); ++n) {
    ASSERT_EQ(scanner.scan(std::string_view(head).substr(0, n)), Result::kIncomplete) << n;
  }
  EXPECT_EQ(scanner.scan(head), Result::kComplete);
  EXPECT_EQ(scanner.begin(), 4U);
  EXPECT_EQ(scanner.end(), head.size());
}

TEST(HeadScanner, RefusesWhatHasTwoReadings) {
  for (const std::string_view bytes : {
           "GET / HTTP/1.1\nHost: x\n\n"sv,              // bare LF
           "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"sv,  // bare CR
           "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n"sv,
           "GET / HTTP/1.1\r\nHost: x\r\n\tfolded\r\n\r\n"sv,
           "GET / HTTP/1.1\r\n Host: x\r\n\r\n"sv,  // folded onto the request line
           "GET / HTTP/1.1\r\nHost : x\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost\t: x\r\n\r\n"sv,
           "GET / HTTP/1.1\r\n: x\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost\r\n\r\n"sv,
           "GET / HTTP/1.1\r\nA\0: x\r\n\r\n"sv, "GET / HTTP/1.1\r\nA: \0\r\n\r\n"sv,
           "GET /\0 HTTP/1.1\r\n\r\n"sv, "GET / HTTP/1.1\r\nA: \x7f\r\n\r\n"sv,
           "\x16\x03\x01\x02"sv,  // TLS
       }) {
    HeadScanner scanner(1000, 10);
    EXPECT_EQ(scanner.scan(bytes), Result::kRefused) << bytes;
    EXPECT_EQ(scanner.status(), 400);
    EXPECT_TRUE(scanner.message().ends_with('.')) << bytes;
  }
}

TEST(HeadScanner, LimitsBytesAndFields) {
  const std::string head = "GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n";
  EXPECT_EQ(HeadScanner(head.size(), 2).scan(head), Result::kComplete);
  HeadScanner too_long(head.size() - 1, 2);
  EXPECT_EQ(too_long.scan(head), Result::kRefused);
  EXPECT_EQ(too_long.status(), 431);
  HeadScanner too_many(head.size(), 1);
  EXPECT_EQ(too_many.scan(head), Result::kRefused);
  EXPECT_EQ(too_many.status(), 431);
  HeadScanner blank(100, 1);
  EXPECT_EQ(blank.scan(std::string(102, '\n')), Result::kRefused);
  std::string lines;
  for (int i = 0; i < 51; ++i) lines += "\r\n";
  HeadScanner only_lines(100, 1);
  EXPECT_EQ(only_lines.scan(lines), Result::kRefused);
  EXPECT_EQ(only_lines.status(), 431);
}

TEST(HeadScanner, AnIdThatMayNotBeEchoedIsNone) {
  HeadScanner scanner(10000, 10);
  EXPECT_EQ(scanner.scan("GET / HTTP/1.1\r\nX-Request-Id: a b\r\nX-Request-Id-Too: c\r\n\r\n"),
            Result::kComplete);
  EXPECT_EQ(scanner.request_id(), "");
}

}  // namespace
}  // namespace pagoda::http
