#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <limits>

#include "base/check.h"
#include "tests/unit/model/gguf_builder.h"

namespace pagoda::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::unique_ptr<GgufFile>> open_bytes(std::vector<uint8_t> bytes) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", std::move(bytes));
  return GgufFile::open(fs, "x.gguf");
}

std::string error_of(std::vector<uint8_t> bytes) {
  const auto file = open_bytes(std::move(bytes));
  if (file.ok()) return "";
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  return base::message_of(file.status());
}

// A file that is refused, its size, and what the message must name.
struct Hostile {
  const char* what;
  std::vector<uint8_t> bytes;
  size_t size;  // 0: not looked at
  const char* message;
};

constexpr uint64_t kHuge = uint64_t{1} << 60;
constexpr uint32_t kTypeU32 = 4;

Bytes alignment_header(uint64_t n_tensors, uint32_t alignment) {
  return Bytes::header(n_tensors, 1).string("general.alignment").u32(kTypeU32).u32(alignment);
}

std::vector<Hostile> hostile_tensors() {
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    return Bytes::header(1, 0).tensor("t", dims, type, offset).take();
  };
  const std::vector<uint8_t> twice =
      Bytes::header(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 32).take();
  const std::vector<uint8_t> overlap =
      Bytes::header(2, 0).tensor("t", {64}, 0, 0).tensor("u", {64}, 0, 32).zeros(1000).take();
  const auto named = [](std::string_view name) {
    return Bytes::header(1, 0).tensor(name, {4}, 0, 0).zeros(100).take();
  };
  return {
      {"dimension 0", one({4, 0}, 0, 0), 65, "tensor 't': dimension 2 is 0; it must be at least 1"},
      {"product wraps", one({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), 65,
       "tensor 't': dimension 2 is 4294967296"},
      {"product of I8", one({(uint64_t{1} << 63) - 1, 2}, 24, 0), 65, "tensor 't': dimension 2"},
      {"bytes wrap", one({uint64_t{1} << 62}, 0, 0), 0, "more than 2^64 bytes"},
      {"negative dimension", one({uint64_t{1} << 63}, 0, 0), 0, "tensor 't': dimension 1"},
      {"five dimensions", one({1, 1, 1, 1, 1}, 0, 0), 89,
       "tensor 't': the number of dimensions is 5; it must be 1 to 4"},
      {"no dimensions", one({}, 0, 0), 0, "the number of dimensions is 0"},
      {"4 G dimensions", Bytes::header(1, 0).string("t").u32(0xFFFFFFFF).take(), 37,
       "tensor 't': the number of dimensions is 4294967295"},
      {"offset 2^63", one({4}, 0, uint64_t{1} << 63), 57, "tensor 't'"},
      {"offset near 2^64", one({4}, 0, ~uint64_t{31}), 57, "tensor 't'"},
      {"offset 4", one({4}, 0, 4), 57, "tensor 't': the offset is 4; it must be a multiple of"},
      {"type 255", one({4}, 255, 0), 57, "tensor 't' has type 255, which is not supported"},
      {"type IQ2_XS", one({256}, 17, 0), 57,
       "tensor 't' has type 17 (IQ2_XS), which is not supported; supported are F32, F16, Q4_0"},
      {"33 elements of Q4_0", one({33}, 2, 0), 57, "dimension 1 is 33; type Q4_0 needs a multiple"},
      {"data missing", one({4}, 0, 0), 57, "tensor 't': offset 0 and size 16 reach past the 0"},
      {"tensor twice", twice, 90, "tensor 't' occurs twice"},
      {"tensors overlap", overlap, 0, "tensor 'u': offset 32 lies inside tensor 't'"},
      {"no name", named(""), 0, "the name of tensor 1 of 1 has 0 bytes"},
      {"long name", named(std::string(65, 'x')), 0, "the name of tensor 1 of 1 has 65 bytes"},
      {"control characters", named("t\x1b[2J"), 0, "the name of tensor 1 of 1 is not printable"},
  };
}

std::vector<Hostile> hostile_keys() {
  const auto key = [](uint32_t type) { return Bytes::header(0, 1).string("a.b").u32(type); };
  Bytes nested = key(9);
  for (int i = 0; i < 100000; ++i) nested.u32(9).u64(1);
  const std::vector<uint8_t> twice = Bytes::header(0, 2)
                                         .string("a.b")
                                         .u32(kTypeU32)
                                         .u32(1)
                                         .string("a.b")
                                         .u32(kTypeU32)
                                         .u32(1)
                                         .take();
  return {
      {"key length 2^63", Bytes::header(0, 1).u64(uint64_t{1} << 63).zeros(12).take(), 44,
       "the name of key 1 of 1 has a length of 9223372036854775808"},
      {"key count", Bytes::header(0, ~uint64_t{0}).take(), 24,
       "the key count is 18446744073709551615, but the 0 bytes that follow have room for 0"},
      {"tensor count", Bytes::header(kHuge, 0).take(), 24,
       "the tensor count is 1152921504606846976"},
      {"array count", key(9).u32(8).u64(kHuge).take(), 51,
       "key 'a.b' is an array of 1152921504606846976 values"},
      {"nested arrays", nested.take(), 0, "key 'a.b' is an array of arrays"},
      {"alignment 0", alignment_header(0, 0).take(), 0, "key 'general.alignment' is 0"},
      {"alignment 3", alignment_header(0, 3).take(), 0, "key 'general.alignment' is 3"},
      {"alignment 12", alignment_header(0, 12).take(), 0, "key 'general.alignment' is 12"},
      {"alignment 2^31", alignment_header(1, 1U << 31).tensor("t", {4}, 0, 0).take(), 0,
       "key 'general.alignment' is 2147483648"},
      {"alignment a string",
       Bytes::header(0, 1).string("general.alignment").u32(8).string("32").take(), 0,
       "key 'general.alignment' is a string; it must be an integer"},
      {"bool 2", key(7).u8(2).take(), 40, "key 'a.b' is a bool of value 2; it must be 0 or 1"},
      {"bool 2 in an array", key(9).u32(7).u64(2).u8(1).u8(2).take(), 0, "key 'a.b': element 1"},
      {"string in an array", key(9).u32(8).u64(2).string("").u64(kHuge).take(), 0,
       "element 1 of key 'a.b' has a length of 1152921504606846976"},
      {"value type 13", key(13).u64(0).take(), 0, "key 'a.b' has value type 13"},
      {"value string", key(8).u64(~uint64_t{0}).take(), 0, "key 'a.b' has a length of"},
      {"key twice", twice, 0, "key 'a.b' occurs twice"},
      {"empty key", Bytes::header(0, 1).string("").u32(kTypeU32).u32(0).take(), 0,
       "the name of key 1 of 1 is empty"},
      {"long key", Bytes::header(0, 1).string(std::string(65536, 'k')).u32(7).u8(0).take(), 0,
       "the name of key 1 of 1 has 65536 bytes"},
      {"binary key", Bytes::header(0, 1).string(std::string_view("a\0b", 3)).u32(7).u8(0).take(), 0,
       "the name of key 1 of 1 is not printable"},
      {"value cut short", key(10).u32(0).take(), 0, "it ends in key 'a.b'"},
  };
}

std::vector<Hostile> hostile_starts() {
  const auto raw = [](std::string_view text) { return Bytes().raw(text).take(); };
  return {
      {"big-endian", Bytes().raw("GGUF").u32(0x03000000).u64(kHuge).u64(kHuge).take(), 24,
       "big-endian"},
      {"empty", {}, 0, "is not a GGUF file: it is empty"},
      {"safetensors", raw("{\"__metadata__\":{}}"), 0,
       "is not a GGUF file: it begins with '{\"__'"},
      {"binary", raw("\x7f\x01\x02\x03"), 0, "it begins with bytes 7f 01 02 03"},
      {"three bytes", raw("GGU"), 0, "is not a GGUF file: it begins with 'GGU'"},
      {"version 1", Bytes().raw("GGUF").u32(1).u32(0).u32(0).take(), 0,
       "the version is 1; supported are 2 and 3"},
      {"version 4", Bytes().raw("GGUF").u32(4).u64(0).u64(0).take(), 0, "the version is 4"},
      {"cut in the counts", Bytes().raw("GGUF").u32(3).u64(0).u32(0).take(), 0, "the key count"},
  };
}

void expect_refused(const std::vector<Hostile>& cases) {
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.what);
    if (hostile.size > 0) {
      EXPECT_EQ(hostile.bytes.size(), hostile.size);
    }
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_SELF, &before);
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = error_of(hostile.bytes);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB";
    EXPECT_THAT(message, StartsWith("x.gguf: "));
    EXPECT_THAT(message, HasSubstr(hostile.message));
    EXPECT_LT(message.size(), 400U);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(GgufFile, RefusesHostileTensors) { expect_refused(hostile_tensors()); }
TEST(GgufFile, RefusesHostileKeys) { expect_refused(hostile_keys()); }
TEST(GgufFile, RefusesHostileStarts) { expect_refused(hostile_starts()); }

// Cut at every byte, a good file is refused, never read past its end.
TEST(GgufFile, RefusesEveryPrefix) {
  GgufBuilder builder;
  builder.string("a", "text").u32("b", 7).strings("c", {"x", "", "yz"}).boolean("d", true);
  builder.tensor("t", {4, 2}, DType::kF32, std::vector<uint8_t>(32));
  const std::vector<uint8_t> whole = builder.build();
  ASSERT_TRUE(open_bytes(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THAT(error_of(part), StartsWith("x.gguf: ")) << size;
  }
}

// Whatever byte is changed, the file is read or refused.
TEST(GgufFile, SurvivesEveryChangedByte) {
  GgufBuilder builder;
  builder.u32("general.alignment", 32).strings("c", {"x", "", "yz"}).ints("i", {1, -2});
  builder.tensor("t", {32, 2}, DType::kQ4_1, std::vector<uint8_t>(40));
  builder.tensor("u", {4}, DType::kF32, std::vector<uint8_t>(16));
  const std::vector<uint8_t> whole = builder.build();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      std::vector<uint8_t> bytes = whole;
      bytes[at] = static_cast<uint8_t>(bytes[at] ^ change);
      const auto file = open_bytes(bytes);
      if (!file.ok()) {
        EXPECT_THAT(base::message_of(file.status()), StartsWith("x.gguf: "));
      }
    }
  }
}

// 16 Mi + 1 one-byte values would grow to 128 MiB.
TEST(GgufFile, BoundsAllArraysTogether) {
  constexpr uint64_t kHalf = 1 << 23;
  Bytes bytes = Bytes::header(0, 3);
  for (const char* key : {"a", "b", "c"}) {
    const uint64_t count = *key == 'c' ? 1 : kHalf;
    bytes.string(key).u32(9).u32(0).u64(count).zeros(count);
  }
  EXPECT_THAT(error_of(bytes.take()), HasSubstr("key 'c' is an array of 1 values; all arrays"));
}

TEST(GgufFile, ReadsValues) {
  Bytes bytes = Bytes::header(0, 13);
  bytes.string("u8").u32(0).u8(255).string("i8").u32(1).number(int8_t{-128});
  bytes.string("u16").u32(2).number(uint16_t{65535}).string("i16").u32(3).number(int16_t{-32768});
  bytes.string("u32").u32(4).u32(0xFFFFFFFF).string("i32").u32(5).number(int32_t{-7});
  bytes.string("f32").u32(6).number(0.5F).string("bool").u32(7).u8(1);
  bytes.string("text").u32(8).string("a\xff\0").string("u64").u32(10).u64(~uint64_t{0});
  bytes.string("i64").u32(11).number(std::numeric_limits<int64_t>::min());
  bytes.string("f64").u32(12).number(1e300);
  bytes.string("empty").u32(9).u32(8).u64(0);
  const auto file = open_bytes(bytes.take());
  ASSERT_TRUE(file.ok()) << file.status();
  const GgufFile& gguf = **file;
  EXPECT_EQ(gguf.version(), 3U);
  EXPECT_EQ(*gguf.get_int("u8"), 255);
  EXPECT_EQ(*gguf.get_int("i8"), -128);
  EXPECT_EQ(*gguf.get_int("u16"), 65535);
  EXPECT_EQ(*gguf.get_int("i16"), -32768);
  EXPECT_EQ(*gguf.get_int("u32"), 0xFFFFFFFFLL);
  EXPECT_EQ(*gguf.get_int("i32"), -7);
  EXPECT_EQ(*gguf.get_float("f32"), 0.5);
  EXPECT_TRUE(*gguf.get_bool("bool"));
  EXPECT_EQ(*gguf.get_string("text"), "a\xff");
  EXPECT_EQ(*gguf.get_int("i64"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*gguf.get_float("f64"), 1e300);
  EXPECT_TRUE((*gguf.get_strings("empty"))->empty());
  EXPECT_EQ(base::message_of(gguf.get_int("u64").status()),
            "x.gguf: key 'u64' is 18446744073709551615; it must be below 2^63");
  EXPECT_TRUE(absl::IsNotFound(gguf.get_int("none").status()));
  EXPECT_EQ(base::message_of(gguf.get_int("text").status()),
            "x.gguf: key 'text' is a string; it must be an integer");
  EXPECT_EQ(base::message_of(gguf.get_string("empty").status()),
            "x.gguf: key 'empty' is an array; it must be a string");
  EXPECT_FALSE(gguf.get_float("u8").ok());
  EXPECT_FALSE(gguf.get_bool("u8").ok());
  EXPECT_FALSE(gguf.get_strings("text").ok());
  EXPECT_FALSE(gguf.get_ints("empty").ok());
  EXPECT_EQ(gguf.find("none"), nullptr);
}

TEST(GgufFile, ReadsVersion2) {
  const auto file = open_bytes(Bytes().raw("GGUF").u32(2).u64(0).u64(0).take());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->version(), 2U);
}

TEST(GgufFile, PlacesTensors) {
  GgufBuilder builder;
  builder.u32("general.alignment", 32);
  for (const DType type : kAllTypes) {
    const std::vector<uint8_t> data(static_cast<size_t>(dtype_row_bytes(type, 512)),
                                    static_cast<uint8_t>(type));
    builder.tensor(dtype_info(type).name, {256, 2}, type, data);
  }
  const auto file = open_bytes(builder.build());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), std::size(kAllTypes));
  for (const DType type : kAllTypes) {
    const GgufTensor* tensor = (*file)->find_tensor(dtype_info(type).name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type, type);
    EXPECT_EQ(tensor->dims, (std::vector<int64_t>{256, 2}));
    EXPECT_EQ(static_cast<int64_t>(tensor->data.size()), dtype_row_bytes(type, 512));
    EXPECT_EQ(tensor->data.front(), static_cast<uint8_t>(type));
    EXPECT_EQ(tensor->data.back(), static_cast<uint8_t>(type));
    (*file)->drop(*tensor);
    EXPECT_EQ(tensor->data.back(), static_cast<uint8_t>(type));
  }
  EXPECT_EQ((*file)->find_tensor("none"), nullptr);
}

TEST(GgufFile, PassesErrorsOfTheFileSystemOn) {
  base::MemoryFileSystem fs;
  EXPECT_TRUE(absl::IsNotFound(GgufFile::open(fs, "none.gguf").status()));
}

}  // namespace
}  // namespace pagoda::model
