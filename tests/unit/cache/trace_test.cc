#include "cache/trace.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "cache/trace_writer.h"

namespace pagoda::cache {
namespace {

using testing::HasSubstr;

std::string with_head(std::string_view lines) {
  return fmt::format("{}\n{}", R"({"pagoda_trace":1,"block_size":16,"block_bytes":100})", lines);
}

Trace parsed(const std::string& text) {
  absl::StatusOr<Trace> trace = parse_trace(text, "t");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *std::move(trace) : Trace{};
}
std::string error(const std::string& text) {
  return std::string(parse_trace(text, "t.jsonl").status().message());
}

TEST(Trace, EqualBlocksUnderEqualBlocksAreOneNode) {
  const Trace trace =
      parsed(with_head("{\"t_ms\":5,\"prompt_len\":40,\"output_len\":1,\"blocks\":[1,2]}\n"
                       "{\"t_ms\":2.5,\"prompt_len\":50,\"output_len\":2,\"blocks\":[1,3,2]}\n"));
  ASSERT_EQ(trace.requests.size(), 2U);
  EXPECT_EQ(trace.block_size, 16);
  EXPECT_EQ(trace.block_bytes, 100);
  EXPECT_EQ(trace.requests[0].arrival_us, 2500);  // in the order of arrival
  EXPECT_EQ(trace.n_nodes(), 4);
  EXPECT_EQ(trace.path(trace.requests[0])[0], trace.path(trace.requests[1])[0]);
  EXPECT_EQ(trace.n_lookups(trace.requests[0]), 3);
  EXPECT_EQ(trace.n_lookups(trace.requests[1]), 2);
}

TEST(Trace, MooncakesFormIsRead) {
  const Trace trace = parsed(
      "{\"timestamp\": 27482, \"input_length\": 1100, \"output_length\": 52, "
      "\"hash_ids\": [46, 47, 48]}\n"
      "{\"timestamp\": 30535, \"input_length\": 1030, \"output_length\": 26, "
      "\"hash_ids\": [46, 47, 90]}\n");
  EXPECT_EQ(trace.block_size, 512);
  ASSERT_EQ(trace.requests.size(), 2U);
  EXPECT_EQ(trace.n_lookups(trace.requests[0]), 2);
  EXPECT_EQ(trace.path(trace.requests[0])[1], trace.path(trace.requests[1])[1]);
}

TEST(Trace, ErrorsNameTheLine) {
  EXPECT_THAT(error(with_head("{\"prompt_len\":\n{\n")), HasSubstr("t.jsonl:2"));
  EXPECT_THAT(error(with_head("{\"t_ms\":1,\"prompt_len\":0,\"output_len\":1,"
                              "\"blocks\":[]}\n")),
              HasSubstr("t.jsonl:2"));
  EXPECT_THAT(error("[1]\n"), HasSubstr("t.jsonl:1"));
  EXPECT_FALSE(error("").empty());
}

TEST(Trace, ALastLineWithoutEndIsLeftOut) {
  const Trace trace =
      parsed(with_head("{\"t_ms\":1,\"prompt_len\":20,\"output_len\":0,\"blocks\":[7]}\n"
                       "{\"t_ms\":2,\"prompt"));
  EXPECT_EQ(trace.requests.size(), 1U);
  EXPECT_EQ(trace.n_lines_cut, 1);
}

TraceEntry entry(int32_t first, int32_t n, std::string salt = "") {
  TraceEntry entry;
  entry.tokens.resize(static_cast<size_t>(n));
  std::iota(entry.tokens.begin(), entry.tokens.end(), first);
  entry.prompt_len = n - 4;
  entry.salt = std::move(salt);
  return entry;
}

TEST(TraceWriter, WritesWhatTheReaderReads) {
  std::string text;
  {
    TraceWriter writer({.block_size = 16, .block_bytes = 9, .key = {1}},
                       [&](std::string_view lines) {
                         text += lines;
                         return absl::OkStatus();
                       });
    EXPECT_TRUE(writer.add(entry(0, 40)));
    EXPECT_TRUE(writer.add(entry(0, 70)));
    EXPECT_TRUE(writer.add(entry(0, 70, "mine")));
  }
  const Trace trace = parsed(text);
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.requests[1].output_len, 4);
  EXPECT_EQ(trace.path(trace.requests[0])[1], trace.path(trace.requests[1])[1]);
  EXPECT_NE(trace.path(trace.requests[1])[0], trace.path(trace.requests[2])[0]);
  EXPECT_EQ(text.find("mine"), std::string::npos);
}

TEST(TraceWriter, AFailedDiskIsCounted) {
  TraceWriterStats stats;
  {
    TraceWriter writer({}, [](std::string_view) { return absl::UnavailableError("full"); });
    writer.add(entry(0, 40));
    while (writer.stats().n_failed == 0) std::this_thread::yield();
    stats = writer.stats();
    EXPECT_FALSE(writer.last_error().ok());
  }
  EXPECT_EQ(stats.n_written, 0);
}

}  // namespace
}  // namespace pagoda::cache
