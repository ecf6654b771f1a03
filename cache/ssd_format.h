// The bytes of the SSD tier's files, format 1. Numbers are little-endian, digests as they are, and
// every piece begins and ends at a multiple of base::kDiskAlign (4096 bytes, "unit" below).
//
//   segment-%016x.kv   (the segment's number)
//     ┌────────────────┬────────┬────────┬─ … ─┬────────┐
//     │ segment header │ record │ record │     │ footer │    the footer ends with the file; it is
//     └────────────────┴────────┴────────┴─ … ─┴────────┘    missing after a crash
//
//   segment header, one unit
//        0  u64 magic        8  u32 version      12  u32 zero
//       16  u64 segment     24  i64 created, Unix seconds        zeros
//     4080  XXH3-128 of all before it
//
//   record: a header of whole units, then the block's bytes, zeros up to a unit
//        0  u64 magic        8  u32 version      12  u32 bytes of the header
//       16  u64 segment     24  fields                           zeros
//      -16  XXH3-128 of the header before it
//     Segment and offset say where the record belongs, so that a unit that the disk put elsewhere,
//     or that an older file left behind, is no record.
//
//   fields of a record, 168 + 4 × tokens
//        0  u64 offset of the record in its file                  8  u64 bytes of the block
//       16  key, 32         48  parent's key, 32        80  identity, 32      112  salt digest, 16
//      128  XXH3-128 of the block's bytes              144  i64 written, Unix seconds
//      152  i32 priority   156  i16 group, i16 zero    160  u32 tokens        164  u32 zero
//      168  i32 each token
//
//   footer, whole units: the fields of each record, one after the other, zeros, and at the end
//      -64  u64 magic      -56  u32 version    -52  u32 records
//      -48  u64 segment    -40  u64 bytes of the footer
//      -32  u32 flags: 1 = the file has bytes of records that the footer does not name
//      -28  zeros          -16  XXH3-128 of the footer before it
//
//   FORMAT, one unit: "pagoda kv cache, format 1\n" and zeros
//
// A record that was erased is all zeros and in no footer. The decoders read nothing outside their
// spans, check a length before they use it, and answer kDataLoss for whatever is odd.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/disk.h"
#include "cache/tier.h"

namespace pagoda::cache {

inline constexpr uint32_t kSsdFormatVersion = 1;
inline constexpr int64_t kSegmentHeaderBytes = base::kDiskAlign;
inline constexpr const char* kSsdFormatFile = "FORMAT";

struct SegmentHeader {
  uint64_t number = 0;
  int64_t created_s = 0;  // Unix
};

// All of a record but the block's bytes.
struct SsdRecord {
  BlockRecord block;
  base::Digest256 identity{};
  base::Digest128 data_digest{};
  int64_t offset = 0;      // of its header in the file
  int64_t data_bytes = 0;  // of the block
  int64_t written_s = 0;   // Unix

  int64_t header_bytes() const;
  int64_t bytes() const;  // on the disk
};

struct SegmentFooter {
  std::vector<SsdRecord> records;
  bool is_odd = false;  // there are bytes of records that it doesn't name
};

// What a record of so many tokens and bytes takes on the disk, and in a footer.
int64_t record_header_bytes(int64_t n_tokens);
int64_t record_bytes(int64_t n_tokens, int64_t data_bytes);
int64_t footer_bytes(int64_t n_records, int64_t n_tokens);  // n_tokens: of all records

// into: [kSegmentHeaderBytes]
void encode_segment_header(const SegmentHeader& header, std::span<uint8_t> into);
absl::StatusOr<SegmentHeader> decode_segment_header(std::span<const uint8_t> bytes);

// into: [record.header_bytes()]
void encode_record_header(const SsdRecord& record, uint64_t segment, std::span<uint8_t> into);
// Whether a record may begin here.
bool has_record_magic(std::span<const uint8_t> bytes);
// What the header says its length is; `bytes` has the first unit of it.
absl::StatusOr<int64_t> encoded_header_bytes(std::span<const uint8_t> bytes);
// `bytes` begins with the header, whole; where it was read from is given.
absl::StatusOr<SsdRecord> decode_record_header(std::span<const uint8_t> bytes, uint64_t segment,
                                               int64_t offset);

// At least min_bytes long.
base::DiskBuffer encode_footer(const SegmentFooter& footer, uint64_t segment, int64_t min_bytes);
// What the footer says its length is; `bytes` is the last unit of the file.
absl::StatusOr<int64_t> encoded_footer_bytes(std::span<const uint8_t> bytes);
// `bytes` is the whole footer, which begins at `offset` of the file: no record reaches it.
absl::StatusOr<SegmentFooter> decode_footer(std::span<const uint8_t> bytes, uint64_t segment,
                                            int64_t offset);

// into: [base::kDiskAlign]
void encode_format_file(std::span<uint8_t> into);
// The version; kDataLoss: the file is not ours, or damaged.
absl::StatusOr<uint32_t> decode_format_file(std::span<const uint8_t> bytes);

std::string segment_name(uint64_t number);
std::optional<uint64_t> parse_segment_name(const std::string& name);

}  // namespace pagoda::cache
