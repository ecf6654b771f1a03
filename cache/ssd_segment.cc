#include "cache/ssd_segment.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace pagoda::cache {
namespace {

constexpr int64_t kPieceBytes = 256 * 1024;  // read or written at once where no record says more

size_t as_size(int64_t n) { return static_cast<size_t>(n); }

bool is_zero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

absl::Status data_fault(const SsdRecord& record, std::span<const uint8_t> bytes) {
  if (base::xxh3_128(block_of(record, bytes)) == record.data_digest) return absl::OkStatus();
  return base::status_error(absl::StatusCode::kDataLoss, "a block fails its checksum");
}

class Scanner {
 public:
  Scanner(base::DiskFile& file, uint64_t number, ScanMode mode, const ScanEnds& ends)
      : file_(file), number_(number), mode_(mode), ends_(ends) {}

  absl::StatusOr<SegmentScan> run() {
    ASSIGN_OR_RETURN(const int64_t size, file_.size());
    scan_.file_bytes = size / base::kDiskAlign * base::kDiskAlign;
    if (scan_.file_bytes < kSegmentHeaderBytes) {
      fault(0, "the file is shorter than a segment header");
      return std::move(scan_);
    }
    RETURN_IF_ERROR(read_header());
    RETURN_IF_ERROR(read_footer());
    if (scan_.footer_offset == 0) {
      RETURN_IF_ERROR(walk());
    } else if (mode_ == ScanMode::kVerify) {
      RETURN_IF_ERROR(verify_named());
    }
    return std::move(scan_);
  }

 private:
  void fault(int64_t offset, const std::string& what) {
    scan_.is_odd = true;
    scan_.faults.push_back(fmt::format("{}, byte {}: {}", segment_name(number_), offset, what));
  }

  // The buffer then has bytes [offset, offset + n) of the file.
  absl::StatusOr<std::span<const uint8_t>> read(int64_t offset, int64_t n) {
    if (ends_ && ends_()) return absl::CancelledError();
    if (buffer_.bytes() < n) buffer_ = base::DiskBuffer(n);
    const std::span<uint8_t> into = buffer_.span().first(as_size(n));
    RETURN_IF_ERROR(file_.read(offset, into));
    return into;
  }

  // Records and footer speak for themselves, so that a bad header costs nothing but its own words.
  absl::Status read_header() {
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, read(0, kSegmentHeaderBytes));
    const absl::StatusOr<SegmentHeader> header = decode_segment_header(bytes);
    if (!header.ok()) {
      fault(0, base::message_of(header.status()));
    } else if (header->number != number_) {
      fault(0, fmt::format("the header is of segment {:016x}", header->number));
    } else {
      scan_.header = *header;
    }
    return absl::OkStatus();
  }

  absl::Status read_footer() {
    const int64_t last = scan_.file_bytes - base::kDiskAlign;
    if (last < kSegmentHeaderBytes) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::span<const uint8_t> tail, read(last, base::kDiskAlign));
    const absl::StatusOr<int64_t> n_bytes = encoded_footer_bytes(tail);
    if (!n_bytes.ok()) return absl::OkStatus();  // a segment that nobody finished
    const int64_t offset = scan_.file_bytes - *n_bytes;
    if (offset < kSegmentHeaderBytes) {
      fault(last, "the footer is longer than the file");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, read(offset, *n_bytes));
    absl::StatusOr<SegmentFooter> footer = decode_footer(bytes, number_, offset);
    if (!footer.ok()) {
      fault(offset, base::message_of(footer.status()));
      return absl::OkStatus();
    }
    scan_.footer_offset = offset;
    scan_.is_odd = scan_.is_odd || footer->is_odd;
    scan_.records = std::move(footer->records);
    return absl::OkStatus();
  }

  // Reads the records that the footer names, and keeps those that are good.
  absl::Status verify_named() {
    std::vector<SsdRecord> good;
    for (SsdRecord& record : scan_.records) {
      ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, read(record.offset, record.bytes()));
      const absl::StatusOr<SsdRecord> checked = check_record(
          bytes, {number_, record.offset, record.block.key, record.identity, record.data_bytes});
      if (checked.ok()) {
        good.push_back(std::move(record));
      } else {
        fault(record.offset, base::message_of(checked.status()));
      }
    }
    scan_.records = std::move(good);
    return absl::OkStatus();
  }

  // Record by record. Behind one that is torn the next may lie at any unit: writes that were under
  // way together come to the disk in any order.
  absl::Status walk() {
    int64_t offset = kSegmentHeaderBytes;
    while (offset < scan_.file_bytes) {
      const int64_t n = std::min(kPieceBytes, scan_.file_bytes - offset);
      ASSIGN_OR_RETURN(const std::span<const uint8_t> piece, read(offset, n));
      int64_t at = 0;
      while (at < n && !has_record_magic(piece.subspan(as_size(at)))) {
        const auto unit = piece.subspan(as_size(at), as_size(base::kDiskAlign));
        // A footer that is torn has tokens in it as well.
        if (!is_zero(unit)) scan_.is_odd = true;
        at += base::kDiskAlign;
      }
      offset += at;
      if (at == n) continue;
      ASSIGN_OR_RETURN(const int64_t taken, take_record(offset));
      offset += taken;
    }
    return absl::OkStatus();
  }

  // How far to go on: a record that is good goes to the list.
  absl::StatusOr<int64_t> take_record(int64_t offset) {
    ASSIGN_OR_RETURN(const std::span<const uint8_t> first, read(offset, base::kDiskAlign));
    const absl::StatusOr<int64_t> header_bytes = encoded_header_bytes(first);
    if (!header_bytes.ok()) return skip(offset, base::message_of(header_bytes.status()));
    if (*header_bytes > scan_.file_bytes - offset) return skip(offset, "a record is cut off");
    ASSIGN_OR_RETURN(const std::span<const uint8_t> head, read(offset, *header_bytes));
    absl::StatusOr<SsdRecord> record = decode_record_header(head, number_, offset);
    if (!record.ok()) return skip(offset, base::message_of(record.status()));
    const int64_t n = record->bytes();
    if (n > scan_.file_bytes - offset) return skip(offset, "a record is cut off");
    ASSIGN_OR_RETURN(const std::span<const uint8_t> all, read(offset, n));
    const absl::Status data = data_fault(*record, all);
    if (!data.ok()) return skip(offset, base::message_of(data));
    scan_.records.push_back(*std::move(record));
    return n;
  }

  int64_t skip(int64_t offset, const std::string& what) {
    fault(offset, what);
    return base::kDiskAlign;
  }

  base::DiskFile& file_;
  const uint64_t number_;
  const ScanMode mode_;
  const ScanEnds& ends_;
  SegmentScan scan_;
  base::DiskBuffer buffer_;
};

}  // namespace

absl::StatusOr<SegmentScan> scan_segment(base::DiskFile& file, uint64_t number, ScanMode mode,
                                         const ScanEnds& ends) {
  return Scanner(file, number, mode, ends).run();
}

absl::StatusOr<std::shared_ptr<base::DiskFile>> create_segment(base::Disk& disk,
                                                               const SegmentHeader& header) {
  ASSIGN_OR_RETURN(std::shared_ptr<base::DiskFile> file, disk.create(segment_name(header.number)));
  base::DiskBuffer buffer(kSegmentHeaderBytes);
  encode_segment_header(header, buffer.span());
  absl::Status status = file->write(0, buffer.span());
  if (status.ok()) status = disk.sync_folder();
  if (status.ok()) return file;
  // An empty file that stays is found, and removed, by the next scan.
  disk.remove(segment_name(header.number)).IgnoreError();
  return status;
}

absl::StatusOr<int64_t> write_footer(base::DiskFile& file, const SegmentFooter& footer,
                                     uint64_t number, int64_t offset, int64_t min_bytes) {
  const base::DiskBuffer buffer = encode_footer(footer, number, min_bytes);
  RETURN_IF_ERROR(file.write(offset, buffer.span()));
  return buffer.bytes();
}

absl::Status erase_range(base::DiskFile& file, int64_t offset, int64_t bytes) {
  base::DiskBuffer zeros(std::min(bytes, kPieceBytes));
  std::ranges::fill(zeros.span(), uint8_t{0});
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, bytes - at);
    RETURN_IF_ERROR(file.write(offset + at, zeros.span().first(as_size(n))));
  }
  return absl::OkStatus();
}

absl::StatusOr<SsdRecord> check_record(std::span<const uint8_t> bytes,
                                       const ExpectedRecord& expected) {
  ASSIGN_OR_RETURN(SsdRecord record,
                   decode_record_header(bytes, expected.segment, expected.offset));
  const bool is_expected =
      record.block.key == expected.key && record.identity == expected.identity &&
      record.data_bytes == expected.data_bytes && record.bytes() <= std::ssize(bytes);
  if (!is_expected) {
    return base::status_error(absl::StatusCode::kDataLoss, "another record than expected");
  }
  RETURN_IF_ERROR(data_fault(record, bytes));
  return record;
}

std::span<const uint8_t> block_of(const SsdRecord& record, std::span<const uint8_t> bytes) {
  return bytes.subspan(as_size(record.header_bytes()), as_size(record.data_bytes));
}

}  // namespace pagoda::cache
