// The calls that read, write and erase a segment file. All of them wait for the disk; they belong
// on the I/O queue. They hold no state and no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/disk.h"
#include "cache/ssd_format.h"

namespace pagoda::cache {

// What lies in a segment file.
struct SegmentScan {
  SegmentHeader header;
  int64_t file_bytes = 0;           // whole units
  int64_t footer_offset = 0;        // 0: it has no good footer
  bool is_odd = false;              // it has, or may have, records that nobody can name
  std::vector<SsdRecord> records;   // by offset
  std::vector<std::string> faults;  // what is wrong, a sentence each
};

enum class ScanMode : uint8_t {
  kFooter,  // believes a good footer; without one every record is read whole
  kVerify,  // reads every record whole
};

// Whether it should end early; asked between reads. What it then answers is kCancelled.
using ScanEnds = std::function<bool()>;

// kUnavailable and the like: the disk failed. What is odd in the file is in `faults`.
absl::StatusOr<SegmentScan> scan_segment(base::DiskFile& file, uint64_t number, ScanMode mode,
                                         const ScanEnds& ends);

// A new file with its header, whose name is durable.
absl::StatusOr<std::shared_ptr<base::DiskFile>> create_segment(base::Disk& disk,
                                                               const SegmentHeader& header);
// How long it is. Not synced.
absl::StatusOr<int64_t> write_footer(base::DiskFile& file, const SegmentFooter& footer,
                                     uint64_t number, int64_t offset, int64_t min_bytes);
// Zeros in the place of a record. Not synced.
absl::Status erase_range(base::DiskFile& file, int64_t offset, int64_t bytes);

// What a record that was read must be.
struct ExpectedRecord {
  uint64_t segment = 0;
  int64_t offset = 0;
  BlockKey key{};
  base::Digest256 identity{};
  int64_t data_bytes = 0;
};
// The record's header, when all of `bytes` is as expected; else kDataLoss.
absl::StatusOr<SsdRecord> check_record(std::span<const uint8_t> bytes,
                                       const ExpectedRecord& expected);
// The block in a record that was checked.
std::span<const uint8_t> block_of(const SsdRecord& record, std::span<const uint8_t> bytes);

}  // namespace pagoda::cache
