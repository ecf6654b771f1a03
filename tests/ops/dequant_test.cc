// Blocks of random bytes and the values that the Python package "gguf" gives them.
#include "kernels/ref/dequant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

namespace pagoda::ref {
namespace {

struct Element {
  int64_t index;
  float value;
};
struct Case {
  DType type;
  std::string_view hex;
  std::vector<Element> elements;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {DType::kQ4_0,
       "5732aec51de466bc7e2de44241a549604d29",
       {{0, 1.188720703125F},
        {1, -0.5943603515625F},
        {15, 0.1981201171875F},
        {16, 0.396240234375F},
        {17, 0.79248046875F},
        {31, -1.188720703125F}}},
      {DType::kQ4_1,
       "15adee348a5e21c484803be240768ee4685ba1e1",
       {{0, -0.4859619140625F},
        {1, -0.8035888671875F},
        {15, 0.22869873046875F},
        {16, -0.3271484375F},
        {17, -0.08892822265625F},
        {31, -0.8035888671875F}}},
      {DType::kQ5_0,
       "13a4fdf8375ddd364d8a4e2c5811dcf4c02392ed17f5",
       {{0, -0.2068939208984375F},
        {1, 0.159149169921875F},
        {15, -0.0795745849609375F},
        {16, -0.2068939208984375F},
        {17, -0.0477447509765625F},
        {31, 0.0159149169921875F}}},
      {DType::kQ5_1,
       "73adecb05e2d71e74dea2af18c5f71d2eebab89137b17631",
       {{0, -1.26068115234375F},
        {1, -2.3675537109375F},
        {15, -0.23895263671875F},
        {16, -1.856689453125F},
        {17, -1.3458251953125F},
        {31, -1.77154541015625F}}},
      {DType::kQ8_0,
       "dd2934586c0455a9b8093ce29492419a3a9e635cdafb42a9537ea72f4bc78bcb9b50",
       {{0, 2.3819580078125F},
        {1, 4.031005859375F},
        {15, -4.48907470703125F},
        {16, 4.534881591796875F},
        {17, 4.2142333984375F},
        {31, 3.66455078125F}}},
      {DType::kQ4_K,
       "4f2e692d97c85ca89f41f44155566584fabe10779fc7b039e1411d39291ab1778ed2e448cb628902cb8e"
       "27b47bb545535488a2ca7ccbb97aa4f6dd27192d7717ad69d9b04a127d948f77b0e2628449718aacaa7f"
       "94a1db0d54496767cf15ad25bada021efd97047d9c2608635fdaa4e50e260587e1a0900e393e69f56ce6"
       "eb8f15ef2411b5f5cf48acd8020469566c63",
       {{0, 20.05096435546875F},
        {15, 13.24951171875F},
        {16, 29.11956787109375F},
        {31, 4.180908203125F},
        {32, 11.74407958984375F},
        {63, 3.85833740234375F},
        {77, 31.484375F},
        {100, 27.51556396484375F},
        {127, 27.51556396484375F},
        {128, 33.34381103515625F},
        {145, 33.34381103515625F},
        {159, 15.1080322265625F},
        {160, 40.80780029296875F},
        {191, 72.74505615234375F},
        {200, 14.06524658203125F},
        {223, 1.64520263671875F},
        {224, -2.02880859375F},
        {255, 19.2626953125F}}},
      {DType::kQ5_K,
       "2ab1ba2cf5d5e57c5967a45d675f3ec73fb15d7fad6ba99ab5e589201f99fcfdd165ebda87be15a37b85"
       "229988227a579d6251895c689b6ba7ae209a54de26dbd6cfde5790903d5ef683a5ea8a193eed1b5cbbab"
       "4af5c770e388bc03745174f1bb0ab55c611b7c268106571581fdb5c83e065c0c7230d27120d2d847cdb6"
       "103ae1084a78a0c5229779a0db5e60823f0fb449a921ddb02a33089f40c1b10de5d88ad89e8d2f001786"
       "36a386e9a1569656",
       {{0, -249.8826904296875F},
        {15, -232.7767333984375F},
        {16, -190.0118408203125F},
        {31, -249.8826904296875F},
        {32, -87.6031494140625F},
        {63, -104.5477294921875F},
        {77, -8.629638671875F},
        {100, -195.7940673828125F},
        {127, -118.3331298828125F},
        {128, -267.896728515625F},
        {145, -72.630615234375F},
        {159, -276.7724609375F},
        {160, -194.7191162109375F},
        {191, -1.5509033203125F},
        {200, -82.6278076171875F},
        {223, -222.7030029296875F},
        {224, -42.896240234375F},
        {255, -20.626220703125F}}},
      {DType::kQ6_K,
       "f059445a04b774d4627eb01c5e3788b56d4ddb88811528863a45eae91f1bb4286bf98e021f5d3365abcd"
       "b6974298a3ba63b78c67925be2c7f7871984191f3f9ca69f6c2ab31012e68f4d160d69e18990e6caaf29"
       "bf9dfcd8d2767011e05699e7069fab529f01052b6daa031451cd50252822093503f4e6fcb475b84dfd54"
       "c84b02a907b31e46cc721a9327dde627756cfde013a03c232ad96e727fe563c03203c8272180f51ca07d"
       "593cc663cf103176fe04a87f8ab134198a8d0a9fc9243c72ff0e6e03836cd0dfe7fd03ec10ba2d0d2b26",
       {{0, -0.0F},
        {15, 0.6505279541015625F},
        {16, -1.011932373046875F},
        {31, 8.095458984375F},
        {32, -55.656280517578125F},
        {63, -1.44561767578125F},
        {77, -9.035110473632812F},
        {100, 35.851318359375F},
        {127, 18.287063598632812F},
        {128, 15.660858154296875F},
        {145, 1.590179443359375F},
        {159, -0.5059661865234375F},
        {160, 0.433685302734375F},
        {191, 10.11932373046875F},
        {200, -3.083984375F},
        {223, -50.59661865234375F},
        {224, 17.347412109375F},
        {255, -3.75860595703125F}}},
  };
  return all;
}

std::vector<uint8_t> bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

TEST(Dequant, GivesTheValuesOfTheFormat) {
  for (const Case& c : cases()) {
    const DTypeInfo info = dtype_info(c.type);
    std::vector<uint8_t> row = bytes_of(c.hex);
    ASSERT_EQ(row.size(), static_cast<size_t>(info.block_bytes)) << info.name;
    // A second block, so that a row of several is met.
    const std::vector<uint8_t> copy = row;
    row.insert(row.begin(), copy.begin(), copy.end());
    std::vector<float> values(static_cast<size_t>(2 * info.block_len));
    dequantize_row(c.type, row.data(), values.data(), 2 * info.block_len);
    for (const Element& element : c.elements) {
      for (const int64_t block : {0, 1}) {
        const int64_t i = block * info.block_len + element.index;
        EXPECT_EQ(values[static_cast<size_t>(i)], element.value) << info.name << " " << i;
        EXPECT_EQ(static_cast<float>(dequantize(c.type, row.data(), i)), element.value);
      }
    }
  }
}

TEST(Dequant, FloatsKeepEveryKindOfValue) {
  const float inf = std::numeric_limits<float>::infinity();
  const uint16_t halves[] = {0x0000, 0x8000, 0x3C00, 0xC500, 0x7BFF, 0x0001, 0x7C00, 0xFC00};
  const float of_halves[] = {0, -0.0F, 1, -5, 65504, 0x1p-24F, inf, -inf};
  const uint16_t brains[] = {0x3F80, 0xC0A0, 0x7F80, 0x0001};
  const float of_brains[] = {1, -5, inf, 0x1p-133F};
  const float floats[] = {1.5F, -0.0F, inf, 1e-45F};
  const auto row = [](const void* p) { return static_cast<const uint8_t*>(p); };
  std::vector<float> out(8);
  dequantize_row(DType::kF16, row(halves), out.data(), 8);
  EXPECT_EQ(std::memcmp(out.data(), of_halves, sizeof(of_halves)), 0);
  dequantize_row(DType::kBF16, row(brains), out.data(), 4);
  EXPECT_EQ(std::memcmp(out.data(), of_brains, sizeof(of_brains)), 0);
  dequantize_row(DType::kF32, row(floats), out.data(), 4);
  EXPECT_EQ(std::memcmp(out.data(), floats, sizeof(floats)), 0);
  const uint16_t nan = 0x7E00;
  EXPECT_TRUE(std::isnan(dequantize(DType::kF16, row(&nan), 0)));
}

}  // namespace
}  // namespace pagoda::ref
