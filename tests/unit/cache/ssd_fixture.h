// An SSD tier on a disk in memory and a queue that is pumped by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory_disk.h"
#include "base/pumped_io_queue.h"
#include "cache/ssd_format.h"
#include "cache/ssd_tier.h"
#include "tests/unit/cache/ssd_blocks.h"

namespace pagoda::cache {

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
