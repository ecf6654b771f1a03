#include "cache/ssd_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace pagoda::cache {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kSegmentMagic = 0x4745535644474150;  // "PAGDVSEG"
constexpr uint64_t kRecordMagic = 0x4345525644474150;   // "PAGDVREC"
constexpr uint64_t kFooterMagic = 0x5254465644474150;   // "PAGDVFTR"
constexpr std::string_view kFormatText = "pagoda kv cache, format ";

constexpr int64_t kDigestBytes = 16;
constexpr int64_t kRecordFixedBytes = 24;  // in front of the fields
constexpr int64_t kFieldsFixedBytes = 168;
constexpr int64_t kFooterTailBytes = 64;
constexpr int64_t kMaxTokens = int64_t{1} << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 40;  // of a block, a footer and an offset
constexpr uint32_t kFlagOdd = 1;

size_t as_size(int64_t n) { return static_cast<size_t>(n); }

absl::Status odd(const char* what) {
  return base::status_error(absl::StatusCode::kDataLoss, "{}", what);
}

// Writes numbers and digests one after the other; the caller made room for all of them.
class Writer {
 public:
  explicit Writer(std::span<uint8_t> into) : left_(into) {}

  template <std::integral Int>
  Writer& number(Int value) {
    return bytes({reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }
  Writer& bytes(std::span<const uint8_t> from) {
    CHECK_LE(from.size(), left_.size());
    if (!from.empty()) std::memcpy(left_.data(), from.data(), from.size());
    left_ = left_.subspan(from.size());
    return *this;
  }

 private:
  std::span<uint8_t> left_;
};

// The other way round. Past the end it reads zeros and says so by ok().
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> from) : left_(from) {}

  template <std::integral Int>
  Int number() {
    Int value = 0;
    bytes({reinterpret_cast<uint8_t*>(&value), sizeof value});
    return value;
  }
  template <size_t n>
  std::array<uint8_t, n> digest() {
    std::array<uint8_t, n> value{};
    bytes(value);
    return value;
  }
  void bytes(std::span<uint8_t> into) {
    if (into.size() > left_.size()) {
      is_ok_ = false;
      left_ = {};
      return;
    }
    if (!into.empty()) std::memcpy(into.data(), left_.data(), into.size());
    left_ = left_.subspan(into.size());
  }
  size_t left() const { return left_.size(); }
  bool ok() const { return is_ok_; }

 private:
  std::span<const uint8_t> left_;
  bool is_ok_ = true;
};

// The digest that ends every checked piece.
void seal(std::span<uint8_t> piece) {
  const size_t n = piece.size() - as_size(kDigestBytes);
  Writer(piece.subspan(n)).bytes(base::xxh3_128(piece.first(n)));
}

bool is_sealed(std::span<const uint8_t> piece) {
  const size_t n = piece.size() - as_size(kDigestBytes);
  const base::Digest128 digest = base::xxh3_128(piece.first(n));
  return std::ranges::equal(digest, piece.subspan(n));
}

void write_fields(const SsdRecord& record, Writer& out) {
  out.number(static_cast<uint64_t>(record.offset));
  out.number(static_cast<uint64_t>(record.data_bytes));
  out.bytes(record.block.key).bytes(record.block.parent).bytes(record.identity);
  out.bytes(record.block.salt).bytes(record.data_digest);
  out.number(record.written_s).number(record.block.priority);
  out.number(record.block.group.value()).number(int16_t{0});
  out.number(static_cast<uint32_t>(record.block.tokens.size())).number(uint32_t{0});
  const std::vector<int32_t>& tokens = record.block.tokens;
  out.bytes({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size() * sizeof(int32_t)});
}

absl::StatusOr<SsdRecord> read_fields(Reader& in) {
  SsdRecord record;
  const uint64_t offset = in.number<uint64_t>();
  const uint64_t data_bytes = in.number<uint64_t>();
  record.block.key = in.digest<32>();
  record.block.parent = in.digest<32>();
  record.identity = in.digest<32>();
  record.block.salt = in.digest<16>();
  record.data_digest = in.digest<16>();
  record.written_s = in.number<int64_t>();
  record.block.priority = in.number<int32_t>();
  record.block.group = GroupId(in.number<int16_t>());
  in.number<int16_t>();
  const uint32_t n_tokens = in.number<uint32_t>();
  in.number<uint32_t>();
  if (!in.ok()) return odd("a record's fields are cut off");
  if (offset > kMaxBytes || offset % base::kDiskAlign != 0) return odd("an offset is out of range");
  if (data_bytes > kMaxBytes) return odd("a block's length is out of range");
  if (n_tokens > kMaxTokens || n_tokens > in.left() / sizeof(int32_t)) {
    return odd("a record has more tokens than room for them");
  }
  record.offset = static_cast<int64_t>(offset);
  record.data_bytes = static_cast<int64_t>(data_bytes);
  record.block.tokens.resize(n_tokens);
  in.bytes({reinterpret_cast<uint8_t*>(record.block.tokens.data()), n_tokens * sizeof(int32_t)});
  return record;
}

}  // namespace

int64_t record_header_bytes(int64_t n_tokens) {
  return base::disk_align_up(kRecordFixedBytes + kFieldsFixedBytes + 4 * n_tokens + kDigestBytes);
}

int64_t record_bytes(int64_t n_tokens, int64_t data_bytes) {
  return record_header_bytes(n_tokens) + base::disk_align_up(data_bytes);
}

int64_t footer_bytes(int64_t n_records, int64_t n_tokens) {
  return base::disk_align_up(n_records * kFieldsFixedBytes + 4 * n_tokens + kFooterTailBytes);
}

int64_t SsdRecord::header_bytes() const { return record_header_bytes(std::ssize(block.tokens)); }

int64_t SsdRecord::bytes() const { return record_bytes(std::ssize(block.tokens), data_bytes); }

void encode_segment_header(const SegmentHeader& header, std::span<uint8_t> into) {
  CHECK_EQ(into.size(), as_size(kSegmentHeaderBytes));
  std::ranges::fill(into, uint8_t{0});
  Writer(into)
      .number(kSegmentMagic)
      .number(kSsdFormatVersion)
      .number(uint32_t{0})
      .number(header.number)
      .number(header.created_s);
  seal(into);
}

absl::StatusOr<SegmentHeader> decode_segment_header(std::span<const uint8_t> bytes) {
  if (bytes.size() < as_size(kSegmentHeaderBytes)) return odd("a segment header is cut off");
  bytes = bytes.first(as_size(kSegmentHeaderBytes));
  Reader in(bytes);
  if (in.number<uint64_t>() != kSegmentMagic) return odd("no segment header");
  if (in.number<uint32_t>() != kSsdFormatVersion) return odd("a segment of another format");
  if (!is_sealed(bytes)) return odd("a segment header fails its checksum");
  in.number<uint32_t>();
  SegmentHeader header;
  header.number = in.number<uint64_t>();
  header.created_s = in.number<int64_t>();
  return header;
}

void encode_record_header(const SsdRecord& record, uint64_t segment, std::span<uint8_t> into) {
  CHECK_EQ(into.size(), as_size(record.header_bytes()));
  CHECK_LE(std::ssize(record.block.tokens), kMaxTokens);
  std::ranges::fill(into, uint8_t{0});
  Writer out(into);
  out.number(kRecordMagic).number(kSsdFormatVersion);
  out.number(static_cast<uint32_t>(into.size())).number(segment);
  write_fields(record, out);
  seal(into);
}

bool has_record_magic(std::span<const uint8_t> bytes) {
  return Reader(bytes).number<uint64_t>() == kRecordMagic;
}

absl::StatusOr<int64_t> encoded_header_bytes(std::span<const uint8_t> bytes) {
  Reader in(bytes);
  if (in.number<uint64_t>() != kRecordMagic) return odd("no record");
  if (in.number<uint32_t>() != kSsdFormatVersion) return odd("a record of another format");
  const int64_t header_bytes = in.number<uint32_t>();
  if (!in.ok() || header_bytes == 0 || header_bytes % base::kDiskAlign != 0 ||
      header_bytes > record_header_bytes(kMaxTokens)) {
    return odd("the length of a record header is out of range");
  }
  return header_bytes;
}

absl::StatusOr<SsdRecord> decode_record_header(std::span<const uint8_t> bytes, uint64_t segment,
                                               int64_t offset) {
  ASSIGN_OR_RETURN(const int64_t header_bytes, encoded_header_bytes(bytes));
  if (bytes.size() < as_size(header_bytes)) return odd("a record header is cut off");
  bytes = bytes.first(as_size(header_bytes));
  if (!is_sealed(bytes)) return odd("a record header fails its checksum");
  Reader in(bytes.first(bytes.size() - as_size(kDigestBytes)).subspan(16));
  if (in.number<uint64_t>() != segment) return odd("a record of another segment");
  ASSIGN_OR_RETURN(SsdRecord record, read_fields(in));
  if (record.offset != offset) return odd("a record that belongs elsewhere in its segment");
  if (record.header_bytes() != header_bytes) return odd("a record header of another length");
  return record;
}

base::DiskBuffer encode_footer(const SegmentFooter& footer, uint64_t segment, int64_t min_bytes) {
  int64_t n_tokens = 0;
  for (const SsdRecord& record : footer.records) n_tokens += std::ssize(record.block.tokens);
  const int64_t n_bytes = footer_bytes(std::ssize(footer.records), n_tokens);
  base::DiskBuffer buffer(std::max(n_bytes, min_bytes));
  const std::span<uint8_t> into = buffer.span();
  std::ranges::fill(into, uint8_t{0});
  Writer fields(into);
  for (const SsdRecord& record : footer.records) write_fields(record, fields);
  Writer tail(into.last(as_size(kFooterTailBytes)));
  tail.number(kFooterMagic).number(kSsdFormatVersion);
  tail.number(static_cast<uint32_t>(footer.records.size())).number(segment);
  tail.number(static_cast<uint64_t>(into.size())).number(footer.is_odd ? kFlagOdd : 0U);
  seal(into);
  return buffer;
}

absl::StatusOr<int64_t> encoded_footer_bytes(std::span<const uint8_t> bytes) {
  if (bytes.size() < as_size(kFooterTailBytes)) return odd("a footer is cut off");
  Reader in(bytes.last(as_size(kFooterTailBytes)));
  if (in.number<uint64_t>() != kFooterMagic) return odd("no footer");
  if (in.number<uint32_t>() != kSsdFormatVersion) return odd("a footer of another format");
  in.number<uint32_t>();
  in.number<uint64_t>();
  const uint64_t n_bytes = in.number<uint64_t>();
  if (n_bytes == 0 || n_bytes % base::kDiskAlign != 0 || n_bytes > kMaxBytes) {
    return odd("the length of a footer is out of range");
  }
  return static_cast<int64_t>(n_bytes);
}

absl::StatusOr<SegmentFooter> decode_footer(std::span<const uint8_t> bytes, uint64_t segment,
                                            int64_t offset) {
  ASSIGN_OR_RETURN(const int64_t n_bytes, encoded_footer_bytes(bytes));
  if (bytes.size() != as_size(n_bytes)) return odd("a footer of another length");
  if (!is_sealed(bytes)) return odd("a footer fails its checksum");
  const size_t fields_bytes = bytes.size() - as_size(kFooterTailBytes);
  Reader tail(bytes.subspan(fields_bytes + 12));
  const uint32_t n_records = tail.number<uint32_t>();
  if (tail.number<uint64_t>() != segment) return odd("a footer of another segment");
  tail.number<uint64_t>();
  SegmentFooter footer;
  footer.is_odd = (tail.number<uint32_t>() & kFlagOdd) != 0;
  if (n_records > fields_bytes / as_size(kFieldsFixedBytes)) {
    return odd("a footer has more records than room for them");
  }
  Reader in(bytes.first(fields_bytes));
  footer.records.reserve(n_records);
  for (uint32_t i = 0; i < n_records; ++i) {
    ASSIGN_OR_RETURN(SsdRecord record, read_fields(in));
    if (record.offset < kSegmentHeaderBytes || record.offset > offset - record.bytes()) {
      return odd("a footer has a record outside its segment");
    }
    footer.records.push_back(std::move(record));
  }
  return footer;
}

void encode_format_file(std::span<uint8_t> into) {
  CHECK_EQ(into.size(), as_size(base::kDiskAlign));
  std::ranges::fill(into, uint8_t{0});
  const std::string text = fmt::format("{}{}\n", kFormatText, kSsdFormatVersion);
  std::ranges::copy(text, into.begin());
}

absl::StatusOr<uint32_t> decode_format_file(std::span<const uint8_t> bytes) {
  constexpr size_t kMaxDigits = 9;
  const std::string text(bytes.begin(), std::ranges::find(bytes, uint8_t{'\n'}));
  const bool is_ours = text.size() < bytes.size() && text.starts_with(kFormatText);
  const std::string digits = is_ours ? text.substr(kFormatText.size()) : "";
  if (digits.empty() || digits.size() > kMaxDigits) return odd("not a FORMAT file of this tier");
  uint32_t version = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return odd("not a FORMAT file of this tier");
    version = version * 10 + static_cast<uint32_t>(digit - '0');
  }
  return version;
}

std::string segment_name(uint64_t number) { return fmt::format("segment-{:016x}.kv", number); }

std::optional<uint64_t> parse_segment_name(const std::string& name) {
  constexpr std::string_view kBefore = "segment-";
  constexpr size_t kDigits = 16;
  if (name.size() < kBefore.size() + kDigits || !name.starts_with(kBefore)) return std::nullopt;
  uint64_t number = 0;
  for (const char c : name.substr(kBefore.size(), kDigits)) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    number = number * 16 + static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  if (name != segment_name(number)) return std::nullopt;
  return number;
}

}  // namespace pagoda::cache
