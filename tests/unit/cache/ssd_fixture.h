// An SSD tier on a disk in memory and a queue that is pumped by hand, and blocks that are told
// apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory_disk.h"
#include "base/pumped_io_queue.h"
#include "cache/ssd_format.h"
#include "cache/ssd_tier.h"

namespace pagoda::cache {

inline constexpr int32_t kTestTokens = 16;
inline constexpr int64_t kTestBlockBytes = 6000;                         // two units
inline constexpr int64_t kTestRecordBytes = 3 * base::kDiskAlign;        // with its header
inline constexpr int64_t kTestSegmentBytes = 10 * 3 * base::kDiskAlign;  // nine blocks and the rest

inline BlockKey test_key(int32_t id) {
  BlockKey key{};
  std::memcpy(key.data(), &id, sizeof id);
  key[31] = 0x77;
  return key;
}

inline base::Digest128 test_salt(int32_t id) {
  base::Digest128 salt{};
  std::memcpy(salt.data(), &id, sizeof id);
  return salt;
}

// Tokens that are nobody else's, so that a test can look for them on the disk.
inline int32_t test_token(int32_t id, int32_t i) { return 0x51000000 + id * 256 + i; }

inline BlockRecord test_record(int32_t id, int32_t parent = -1, int32_t salt = 0) {
  BlockRecord record;
  record.key = test_key(id);
  record.parent = test_key(parent);
  record.salt = test_salt(salt);
  record.group = GroupId(2);
  record.priority = 50;
  for (int32_t i = 0; i < kTestTokens; ++i) record.tokens.push_back(test_token(id, i));
  return record;
}

// No byte of it is the first one of a token.
inline std::vector<uint8_t> test_block(int32_t id) {
  std::mt19937 random(static_cast<uint32_t>(id));
  std::vector<uint8_t> block(static_cast<size_t>(kTestBlockBytes));
  for (uint8_t& byte : block) byte = static_cast<uint8_t>(random() % 0x51);
  return block;
}

inline SsdTierOptions test_options() {
  SsdTierOptions options;
  options.folder = "/kv";
  options.capacity_bytes = 8 * kTestSegmentBytes;
  options.daily_bytes = int64_t{1} << 40;
  options.reserve_bytes = 0;
  options.segment_bytes = kTestSegmentBytes;
  options.block_bytes = kTestBlockBytes;
  options.block_size = kTestTokens;
  options.identity[0] = 1;
  options.sleep = [](int64_t) {};
  return options;
}

class SsdTierTest : public testing::Test {
 protected:
  ~SsdTierTest() override { close(); }

  void open() {
    auto tier = SsdTier::open(options, disk, queue, clock);
    ASSERT_TRUE(tier.ok()) << tier.status();
    tier_ = *std::move(tier);
  }
  void open_and_scan() {
    open();
    queue.pump_all();
    ASSERT_TRUE(tier().ssd_stats().scan_done);
  }
  void close() {
    queue.pump_all();
    tier_.reset();
  }
  void reopen() {
    close();
    open_and_scan();
  }
  // As after a power failure: what is not durable may be gone, and there is no footer.
  void crash(uint64_t seed) {
    disk.crash(seed);
    close();
    open_and_scan();
  }
  SsdTier& tier() { return *tier_; }

  // Blocks of puts live until the fixture dies.
  void begin_put(const BlockRecord& record, int32_t id, absl::Status* status) {
    blocks_.push_back(std::make_unique<std::vector<uint8_t>>(test_block(id)));
    tier().put(record, *blocks_.back(), [status](absl::Status done) { *status = std::move(done); });
  }
  absl::Status put(int32_t id, int32_t parent = -1, int32_t salt = 0) {
    absl::Status status = absl::UnknownError("not called");
    begin_put(test_record(id, parent, salt), id, &status);
    queue.pump_all();
    return status;
  }
  void put_all(int32_t begin, int32_t end) {
    for (int32_t id = begin; id < end; ++id) ASSERT_TRUE(put(id).ok()) << id;
  }
  // OK only where the block is the one that was put.
  absl::Status get(int32_t id) {
    absl::Status status = absl::UnknownError("not called");
    std::vector<uint8_t> into(static_cast<size_t>(kTestBlockBytes));
    tier().get(test_key(id), into, [&](absl::Status done) { status = std::move(done); });
    queue.pump_all();
    EXPECT_TRUE(!status.ok() || into == test_block(id)) << id;
    return status;
  }
  absl::Status sync() {
    absl::Status status = absl::UnknownError("not called");
    tier().sync([&](absl::Status done) { status = std::move(done); });
    queue.pump_all();
    return status;
  }
  std::vector<std::string> segments() {
    std::vector<std::string> names = *disk.list();
    std::erase_if(names, [](const std::string& name) { return !parse_segment_name(name); });
    return names;
  }
  std::vector<uint8_t> bytes_of(const std::string& name) {
    const std::shared_ptr<base::DiskFile> file = *disk.open(name);
    base::DiskBuffer buffer(*file->size());
    const int64_t whole = *file->size() / base::kDiskAlign * base::kDiskAlign;
    const auto into = buffer.span().first(static_cast<size_t>(whole));
    EXPECT_TRUE(file->read(0, into).ok());
    return {into.begin(), into.end()};
  }
  // Whether any token of the block is anywhere on the disk.
  bool has_tokens(int32_t id) {
    const std::vector<std::string> names = *disk.list();
    for (const std::string& name : names) {
      const std::vector<uint8_t> bytes = bytes_of(name);
      for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        int32_t token = 0;
        std::memcpy(&token, bytes.data() + at, sizeof token);
        if (token >= test_token(id, 0) && token < test_token(id, kTestTokens)) return true;
      }
    }
    return false;
  }
  // Where a block's record begins.
  std::optional<std::pair<std::string, int64_t>> find_record(int32_t id) {
    for (const std::string& name : segments()) {
      const std::vector<uint8_t> bytes = bytes_of(name);
      const uint64_t number = *parse_segment_name(name);
      for (int64_t at = 0; at < std::ssize(bytes); at += base::kDiskAlign) {
        const auto rest = std::span(bytes).subspan(static_cast<size_t>(at));
        const auto record = decode_record_header(rest, number, at);
        if (record.ok() && record->block.key == test_key(id)) return std::pair(name, at);
      }
    }
    return std::nullopt;
  }

  SsdTierOptions options = test_options();
  base::FakeClock clock;
  base::MemoryDisk disk;
  base::PumpedIoQueue queue;

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> blocks_;
  std::unique_ptr<SsdTier> tier_;
};

}  // namespace pagoda::cache
