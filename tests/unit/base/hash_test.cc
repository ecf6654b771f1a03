#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace pagoda::base {
namespace {

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string sha256_hex(const std::string& text) { return to_hex(Sha256().update(text).finish()); }

// The examples of FIPS 180-4.
TEST(Sha256Test, KnownDigests) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesOfAnySizeGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i * 31));
  const Digest256 whole = Sha256().update(text).finish();
  for (const size_t piece : {1u, 3u, 63u, 64u, 65u, 999u}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.update(bytes_of(text).subspan(at, std::min(piece, text.size() - at)));
    }
    EXPECT_EQ(hash.finish(), whole) << piece;
  }
}

TEST(Sha256Test, NumbersAreEightLittleEndianBytes) {
  const std::vector<uint8_t> bytes = {0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01};
  EXPECT_EQ(Sha256().update_u64(0x0102030405060708).finish(), Sha256().update(bytes).finish());
  EXPECT_NE(Sha256().update_u64(1).finish(), Sha256().update_u64(0).finish());
}

TEST(Xxh3Test, KnownDigestsInCanonicalOrder) {
  EXPECT_EQ(to_hex(xxh3_128({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(to_hex(xxh3_128(bytes_of("abc"))), "06b05ab6733a618578af5f94892f3950");
}

// Sizes around the borders at which the algorithm changes its way; any one flipped bit must show.
TEST(Xxh3Test, EveryFlippedBitChangesTheDigest) {
  for (const size_t size : {1u, 3u, 4u, 8u, 9u, 16u, 17u, 128u, 129u, 240u, 241u, 1025u}) {
    std::vector<uint8_t> data(size, 0x5a);
    std::set<Digest128> digests = {xxh3_128(data)};
    for (size_t i = 0; i < size; ++i) {
      data[i] ^= static_cast<uint8_t>(1u << (i % 8));
      digests.insert(xxh3_128(data));
      data[i] ^= static_cast<uint8_t>(1u << (i % 8));
    }
    EXPECT_EQ(digests.size(), size + 1) << size;
  }
}

TEST(ToHexTest, TwoLowerCaseDigitsAByte) {
  EXPECT_EQ(to_hex({}), "");
  const std::vector<uint8_t> bytes = {0x00, 0x0f, 0xf0, 0xff, 0xa5};
  EXPECT_EQ(to_hex(bytes), "000ff0ffa5");
}

}  // namespace
}  // namespace pagoda::base
