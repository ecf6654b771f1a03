#include "server/api/json.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

namespace pagoda::api {
namespace {

constexpr std::array<std::string_view, 2> kKnown = {"a", "b"};

std::string nested(size_t n, char open = '[', char close = ']') {
  return std::string(n, open) + std::string(n, close);
}

TEST(Json, RefusesWhatIsNotAnObject) {
  for (const std::string& body :
       {std::string(), std::string("null"), std::string("[]"), std::string("\"a\""),
        std::string("{"), std::string("{\"a\":}"), std::string("{\"a\":NaN}"),
        std::string("{\"a\":Infinity}"), std::string("{\"a\":-Infinity}"),
        std::string("{\"a\":01}"), std::string("{'a':1}"), std::string("{\"a\":1,}"),
        std::string("{\"a\":1} x"), std::string("{\"a\":\"\xff\"}"),
        std::string("{\"a\":\"\xed\xa0\x80\"}"), std::string("{\"a\":\"\\ud800\"}"),
        std::string("{\"a\":\"\xc3\"}"), std::string("\0{}", 3), std::string("// c\n{}")}) {
    const auto parsed = parse_object(body, kKnown, 128);
    EXPECT_FALSE(parsed.ok()) << body;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << body;
  }
}

TEST(Json, NestingUpToTheLimit) {
  for (const char* field : {"a", "unknown"}) {
    // The object itself is the first level.
    const std::string body = std::string("{\"") + field + "\":" + nested(127) + "}";
    EXPECT_TRUE(parse_object(body, kKnown, 128).ok());
    EXPECT_FALSE(parse_object(body, kKnown, 127).ok());
  }
}

TEST(Json, DeepNestingIsRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* field : {"a", "unknown"}) {
    const std::string begin = std::string("{\"") + field + "\":";
    EXPECT_FALSE(parse_object(begin + nested(100'000) + "}", kKnown, 128).ok());
    std::string objects;
    for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
    EXPECT_FALSE(parse_object(begin + objects, kKnown, 128).ok());
    EXPECT_FALSE(parse_object(begin + std::string(10'000'000, '['), kKnown, 128).ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(Json, TheLastOfEqualKeysCounts) {
  const auto parsed = parse_object(R"({"a": 1, "a": 2})", kKnown, 128);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->object.at("a"), 2);
}

TEST(Json, KeepsOnlyKnownFields) {
  std::string body = "{\"a\":{\"x\":1},\"x\":{\"a\":[1,2]},";
  for (int i = 0; i < 100; ++i) body += "\"u" + std::to_string(i) + "\":0,";
  const auto parsed = parse_object(body + "\"b\":true}", kKnown, 128);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->object.size(), 2U);
  EXPECT_EQ(parsed->object.at("a").at("x"), 1);  // known at the top, anything below
  EXPECT_EQ(parsed->unknown.size(), 16U);
}

TEST(Json, TheLastOfEqualKeysCountsAtEveryDepth) {
  const auto parsed = parse_object(
      R"({"a": {"x": [1, {"y": 2}], "x": {"z": 3}, "z": 4}, "b": [[1], {}, {"c": []}, "s"]})",
      kKnown, 128);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->object, Json::parse(
                                R"({"a": {"x": {"z": 3}, "z": 4},
                                    "b": [[1], {}, {"c": []}, "s"]})"));
}

TEST(Json, KeysKeepTheirOrder) {
  const auto parsed =
      parse_object(R"({"b": {"z": 1, "a": {"y": 2, "x": 3}, "m": 4, "z": 5}})", kKnown, 128);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_text(parsed->object), R"({"b":{"z":5,"a":{"y":2,"x":3},"m":4}})");
}

TEST(Json, AWholeObjectKeepsEverything) {
  const auto parsed = parse_whole_object(R"({"x": [1, {"y": null}], "a": 2})", "the text", 3);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(to_text(*parsed), R"({"x":[1,{"y":null}],"a":2})");
  for (const char* wrong : {"[]", "{", "{\"x\": [[[1]]]}", "{\"x\": 1e999}", ""}) {
    const auto refused = parse_whole_object(wrong, "the text", 3);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_TRUE(std::string(refused.status().message()).starts_with("the text "));
  }
}

TEST(Json, NumbersAreExact) {
  const auto parsed = parse_object(
      R"({"a": [18446744073709551615, -9223372036854775808, 0.1, 1e-300, -0.0], "b": 1e5})", kKnown,
      128);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->object.at("a").dump(),
            "[18446744073709551615,-9223372036854775808,0.1,1e-300,-0.0]");
  EXPECT_TRUE(parsed->object.at("b").is_number_float());
  for (const char* body : {R"({"a": [1, 1e400]})", R"({"a": 0, "x": {"y": 1e400}})"}) {
    const auto refused = parse_object(body, kKnown, 128);
    ASSERT_FALSE(refused.ok()) << body;
    EXPECT_NE(std::string(refused.status().message()).find("out of range"), std::string::npos);
  }
}

TEST(Json, TimeGrowsWithTheBodyAlone) {
  std::string objects = "[{\"k\":1}";
  for (int i = 1; i < 500'000; ++i) objects += ",{\"k\":1}";
  objects += "]";
  std::string keys = "{\"k0\":0";
  for (int i = 1; i < 300'000; ++i) keys += ",\"k" + std::to_string(i % 200'000) + "\":1";
  const auto many_keys = parse_object("{\"a\":" + keys + "}}", kKnown, 128);
  ASSERT_TRUE(many_keys.ok());
  EXPECT_EQ(many_keys->object.at("a").size(), 200'000U);
  for (const char* field : {"a", "unknown"}) {
    const std::string body = std::string("{\"") + field + "\":" + objects + ",\"b\":5}";
    const auto start = std::chrono::steady_clock::now();
    const auto parsed = parse_object(body, kKnown, 128);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << field;
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->object.at("b"), 5);  // what follows a skipped value is kept
    EXPECT_EQ(parsed->object.contains("a"), parsed->unknown.empty());
  }
}

TEST(Json, ManyValuesAreRefused) {
  std::string lists = "[[]";
  for (int64_t i = 1; i < kMaxJsonValues / 4; ++i) lists += ",[]";
  const auto refused = parse_object("{\"a\":" + lists + "]}", kKnown, 128);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("too many values"), std::string::npos);
  EXPECT_TRUE(parse_object("{\"unknown\":" + lists + "]}", kKnown, 128).ok());
}

TEST(Json, ShownIsShortAndValid) {
  std::string long_text;
  for (int i = 0; i < 100; ++i) long_text += "é";
  const std::string text = shown(Json(long_text));
  EXPECT_LT(text.size(), 80U);
  EXPECT_NO_THROW((void)Json(text).dump());
  EXPECT_EQ(shown(Json(1.5)), "1.5");
  EXPECT_EQ(shown(Json::array({1})), "a list");
}

TEST(Json, Integers) {
  int64_t out = 0;
  EXPECT_TRUE(as_int64(Json::parse("16.0"), out));
  EXPECT_EQ(out, 16);
  EXPECT_TRUE(as_int64(Json::parse("-9223372036854775808"), out));
  EXPECT_EQ(out, INT64_MIN);
  for (const char* bad :
       {"9223372036854775808", "1e30", "1.5", "-1e300", "true", "\"1\"", "null"}) {
    EXPECT_FALSE(as_int64(Json::parse(bad), out)) << bad;
  }
}

}  // namespace
}  // namespace pagoda::api
