#include "server/client/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pagoda::client {
namespace {

using Events = std::vector<std::string>;

// The events of a stream that arrives in these pieces.
Events read(const std::vector<std::string>& pieces) {
  SseReader reader;
  Events events;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(reader
                    .push(piece,
                          [&](std::string_view data) {
                            events.emplace_back(data);
                            return true;
                          })
                    .ok());
  }
  return events;
}

TEST(SseReader, FieldsAndLineEnds) {
  EXPECT_EQ(read({"data: a\n\ndata:b\r\n\r\ndata:  c\r\r"}), (Events{"a", "b", " c"}));
  EXPECT_EQ(read({": comment\nevent: x\nid: 7\nretry: 1\ndata: a\n\n"}), (Events{"a"}));
  EXPECT_EQ(read({"data: a\ndata: b\ndata\n\n"}), (Events{"a\nb\n"}));
  EXPECT_EQ(read({"data: a\r\ndata: b\r\n\r\n"}), (Events{"a\nb"}));
  EXPECT_EQ(read({"\n\n: only a comment\n\nevent: no data\n\n"}), Events{});
  EXPECT_EQ(read({"data\n\n"}), (Events{""}));
  EXPECT_EQ(read({"database: a\n\n"}), Events{});
  EXPECT_EQ(read({"\xEF\xBB\xBF"
                  "data: a\n\n"}),
            (Events{"a"}));
  EXPECT_EQ(read({"data: not ended\n"}), Events{});
}

TEST(SseReader, EveryCutGivesTheSameEvents) {
  const std::string stream =
      "\xEF\xBB\xBF"
      "data: one\r\n\r\n: hi\r\ndata: tw\xC3\xB6\r\ndata: lines\n\ndata:\rdata: x\r\r"
      "data: [DONE]\n\n";
  const Events whole = read({stream});
  ASSERT_EQ(whole, (Events{"one", "tw\xC3\xB6\nlines", "\nx", "[DONE]"}));
  for (size_t a = 0; a <= stream.size(); ++a) {
    for (size_t b = a; b <= stream.size(); ++b) {
      EXPECT_EQ(read({stream.substr(0, a), stream.substr(a, b - a), stream.substr(b)}), whole)
          << a << " " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : stream) bytes.emplace_back(1, c);
  EXPECT_EQ(read(bytes), whole);
}

TEST(SseReader, AnEventHasALimit) {
  for (const std::string& line : {std::string(60, 'x'), "data: " + std::string(20, 'x') + "\n"}) {
    SseReader reader(50);
    absl::Status status;
    for (int i = 0; i < 4 && status.ok(); ++i) {
      status = reader.push(line, [](std::string_view) { return true; });
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  }
  SseReader reader(50);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(reader.push("data: 0123456789\n\n", [](std::string_view) { return true; }).ok());
  }
}

TEST(SseReader, TheReceiverMayEndIt) {
  SseReader reader;
  int n = 0;
  EXPECT_TRUE(
      reader.push("data: a\n\ndata: b\n\n", [&](std::string_view) { return ++n > 1; }).ok());
  EXPECT_EQ(n, 1);
}

}  // namespace
}  // namespace pagoda::client
