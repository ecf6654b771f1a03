#include "cache/ssd_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_health.h"
#include "cache/token_bucket.h"
#include "tests/unit/cache/ssd_fixture.h"

namespace pagoda::cache {
namespace {

SsdRecord record_of(int32_t id, int64_t offset, int64_t n_tokens = kTestTokens) {
  SsdRecord record;
  record.block = test_record(id);
  record.block.tokens.resize(static_cast<size_t>(n_tokens), -7);
  record.identity[3] = 9;
  record.data_digest = base::xxh3_128(test_block(id));
  record.offset = offset;
  record.data_bytes = kTestBlockBytes;
  record.written_s = 1'700'000'001;
  return record;
}

void expect_same(const SsdRecord& a, const SsdRecord& b) {
  EXPECT_EQ(a.block.key, b.block.key);
  EXPECT_EQ(a.block.parent, b.block.parent);
  EXPECT_EQ(a.block.salt, b.block.salt);
  EXPECT_EQ(a.block.group, b.block.group);
  EXPECT_EQ(a.block.priority, b.block.priority);
  EXPECT_EQ(a.block.tokens, b.block.tokens);
  EXPECT_EQ(a.identity, b.identity);
  EXPECT_EQ(a.data_digest, b.data_digest);
  EXPECT_EQ(a.offset, b.offset);
  EXPECT_EQ(a.data_bytes, b.data_bytes);
  EXPECT_EQ(a.written_s, b.written_s);
}

std::vector<uint8_t> encoded(const SsdRecord& record, uint64_t segment) {
  std::vector<uint8_t> bytes(static_cast<size_t>(record.header_bytes()));
  encode_record_header(record, segment, bytes);
  return bytes;
}

TEST(SsdFormat, SegmentHeaderComesBack) {
  std::vector<uint8_t> bytes(static_cast<size_t>(kSegmentHeaderBytes));
  encode_segment_header({.number = 77, .created_s = 5}, bytes);
  const auto header = decode_segment_header(bytes);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->number, 77U);
  EXPECT_EQ(header->created_s, 5);
}

TEST(SsdFormat, RecordHeaderComesBack) {
  for (const int64_t n_tokens : {0, 16, 971, 972, 973, 4000}) {
    const SsdRecord record = record_of(3, 8 * base::kDiskAlign, n_tokens);
    const std::vector<uint8_t> bytes = encoded(record, 12);
    EXPECT_EQ(bytes.size() % static_cast<size_t>(base::kDiskAlign), 0U);
    EXPECT_EQ(*encoded_header_bytes(bytes), std::ssize(bytes));
    const auto decoded = decode_record_header(bytes, 12, record.offset);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    expect_same(*decoded, record);
  }
}

TEST(SsdFormat, EveryFlippedBitOfAHeaderIsSeen) {
  const SsdRecord record = record_of(3, base::kDiskAlign);
  std::vector<uint8_t> bytes = encoded(record, 12);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= static_cast<uint8_t>(1U << (i % 8));
    EXPECT_TRUE(absl::IsDataLoss(decode_record_header(bytes, 12, record.offset).status())) << i;
    bytes[i] ^= static_cast<uint8_t>(1U << (i % 8));
  }
}

TEST(SsdFormat, RecordElsewhereIsNone) {
  const SsdRecord record = record_of(3, base::kDiskAlign);
  const std::vector<uint8_t> bytes = encoded(record, 12);
  EXPECT_FALSE(decode_record_header(bytes, 13, record.offset).ok());
  EXPECT_FALSE(decode_record_header(bytes, 12, 2 * record.offset).ok());
  EXPECT_FALSE(decode_record_header(std::span(bytes).first(100), 12, record.offset).ok());
  EXPECT_FALSE(decode_record_header({}, 12, record.offset).ok());
}

TEST(SsdFormat, FooterComesBack) {
  SegmentFooter footer;
  footer.is_odd = true;
  for (int32_t id = 0; id < 50; ++id) {
    footer.records.push_back(record_of(id, kSegmentHeaderBytes + id * kTestRecordBytes, id));
  }
  const int64_t offset = kSegmentHeaderBytes + 50 * kTestRecordBytes;
  for (const int64_t min_bytes : {int64_t{0}, 20 * base::kDiskAlign}) {
    const base::DiskBuffer buffer = encode_footer(footer, 5, min_bytes);
    EXPECT_GE(buffer.bytes(), min_bytes);
    EXPECT_EQ(*encoded_footer_bytes(buffer.span()), buffer.bytes());
    const auto decoded = decode_footer(buffer.span(), 5, offset);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(decoded->is_odd);
    ASSERT_EQ(decoded->records.size(), 50U);
    for (size_t i = 0; i < 50; ++i) expect_same(decoded->records[i], footer.records[i]);
    EXPECT_FALSE(decode_footer(buffer.span(), 6, offset).ok());
    EXPECT_FALSE(decode_footer(buffer.span(), 5, offset - base::kDiskAlign).ok());
    const auto cut = buffer.span().subspan(static_cast<size_t>(base::kDiskAlign));
    EXPECT_FALSE(decode_footer(cut, 5, offset).ok());
  }
}

TEST(SsdFormat, FormatFileComesBack) {
  std::vector<uint8_t> bytes(static_cast<size_t>(base::kDiskAlign));
  encode_format_file(bytes);
  EXPECT_EQ(*decode_format_file(bytes), kSsdFormatVersion);
  EXPECT_FALSE(decode_format_file({}).ok());
  bytes[0] ^= 1;
  EXPECT_FALSE(decode_format_file(bytes).ok());
}

TEST(SsdFormat, OnlyOurNamesAreSegments) {
  EXPECT_EQ(segment_name(0x1f), "segment-000000000000001f.kv");
  EXPECT_EQ(parse_segment_name(segment_name(~uint64_t{0})), ~uint64_t{0});
  for (const char* name : {"", "FORMAT", "segment-1.kv", "segment-000000000000001F.kv",
                           "segment-000000000000001f.kv2", "segment-00000000000001f.kv"}) {
    EXPECT_FALSE(parse_segment_name(name).has_value()) << name;
  }
}

// A power failure at any moment of the making of a folder leaves one that opens again.
TEST(SsdFolder, OpensAgainAfterAnyPowerFailure) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    base::MemoryDisk disk;
    uint64_t calls_left = seed % 3;
    bool has_crashed = false;
    disk.set_hook([&](base::DiskOp, const std::string&, int64_t) {
      if (has_crashed || calls_left-- > 0) return;
      has_crashed = true;
      disk.crash(seed);
    });
    open_ssd_folder(disk, "/kv").status().IgnoreError();  // it may fail by the power
    disk.set_hook(nullptr);
    disk.crash(seed + 1000);
    EXPECT_TRUE(open_ssd_folder(disk, "/kv").ok());
    EXPECT_TRUE(look_into_ssd_folder(disk, "/kv").ok());
  }
}

TEST(TokenBucket, RefillsEvenlyAndKeepsDebts) {
  TokenBucket bucket(100, 0.001, 0);  // a thousand a second
  EXPECT_TRUE(bucket.try_take(100, 0));
  EXPECT_FALSE(bucket.try_take(1, 0));
  EXPECT_TRUE(bucket.try_take(10, 10'000));
  EXPECT_EQ(bucket.spend(50, 10'000), 50'000);
  EXPECT_EQ(bucket.level(10'000), -50);
  EXPECT_EQ(bucket.level(1'000'000), 100);
}

TEST(SsdHealth, ErrorsInARowCountAndSuccessEndsTheRow) {
  SsdHealth health(1000);
  for (int32_t i = 0; i < 10; ++i) {
    health.error(0);
    health.error(0);
    health.end(health.begin(0), true, 0);
  }
  EXPECT_FALSE(health.is_off(0));
  EXPECT_EQ(health.n_errors(), 20);
  const uint64_t late = health.begin(0);
  EXPECT_FALSE(health.is_off(1000));
  EXPECT_FALSE(health.is_off(1001));
  EXPECT_EQ(health.n_errors(), 21);
  health.end(late, true, 2000);
  EXPECT_EQ(health.n_errors(), 21);  // once
}

}  // namespace
}  // namespace pagoda::cache
