#include "kernels/cpu/pack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/memory.h"

namespace pagoda::cpu {
namespace {

constexpr int64_t kStepLen = 4;
constexpr int64_t kStepBytes = kGroupRows * kStepLen;
constexpr int64_t kHalfBytes = kGroupRows * 2;  // a half for each row
constexpr int64_t kParts = 8;                   // of a block of 256

using Part = std::array<uint8_t, kPartLen>;

void copy_half(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); }

float half_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return f16_to_f32(bits);
}

// Elements 0 … 15 of a part are the low nibbles of 16 bytes, 16 … 31 the high ones.
Part split_16(const uint8_t* nibbles) {
  Part q;
  for (size_t i = 0; i < 16; ++i) {
    q[i] = nibbles[i] & 15;
    q[i + 16] = nibbles[i] >> 4;
  }
  return q;
}

// The nibbles on one side of 32 bytes.
Part side_of_32(const uint8_t* nibbles, bool upper) {
  Part q;
  for (size_t i = 0; i < 32; ++i) {
    q[i] = upper ? static_cast<uint8_t>(nibbles[i] >> 4) : nibbles[i] & 15;
  }
  return q;
}

// Element i has bit i of 32.
void add_fifth_bits(Part& q, const uint8_t* bits) {
  for (size_t i = 0; i < 32; ++i) {
    q[i] = static_cast<uint8_t>(q[i] | ((bits[i / 8] >> (i % 8)) & 1) << 4);
  }
}

// The integers of part `part` of a source block, without their offset; signed ones as they are.
Part source_quants(DType type, const uint8_t* block, int64_t part) {
  Part q{};
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
    case DType::kQ4_0:
      return split_16(block + 2);
    case DType::kQ4_1:
      return split_16(block + 4);
    case DType::kQ5_0:
      q = split_16(block + 6);
      add_fifth_bits(q, block + 2);
      return q;
    case DType::kQ5_1:
      q = split_16(block + 8);
      add_fifth_bits(q, block + 4);
      return q;
    case DType::kQ8_0:
      std::memcpy(q.data(), block + 2, q.size());
      return q;
    case DType::kQ4_K:
      return side_of_32(block + 16 + part / 2 * 32, part % 2 == 1);
    case DType::kQ5_K:
      q = side_of_32(block + 48 + part / 2 * 32, part % 2 == 1);
      for (size_t i = 0; i < 32; ++i) {
        q[i] = static_cast<uint8_t>(q[i] | ((block[16 + i] >> part) & 1) << 4);
      }
      return q;
    case DType::kQ6_K: {
      const int64_t half = part / 4, quarter = part % 4;
      q = side_of_32(block + half * 64 + quarter % 2 * 32, quarter >= 2);
      const uint8_t* pairs = block + 128 + half * 32;
      for (size_t i = 0; i < 32; ++i) {
        q[i] = static_cast<uint8_t>(q[i] | ((pairs[i] >> (2 * quarter)) & 3) << 4);
      }
      return q;
    }
  }
  return q;
}

// Writes a row's integers into a packed part, whose bytes are still zero there.
void place_quants(const PackedFormat& format, const Part& q, int64_t lane, uint8_t* part) {
  uint8_t* high = part + format.low_bytes;
  for (int64_t k = 0; k < kPartLen; ++k) {
    const uint8_t value = q[static_cast<size_t>(k)];
    const int64_t step = k / kStepLen;
    const int64_t byte = lane * kStepLen + k % kStepLen;
    if (format.low_bytes == 512) {
      part[step * kStepBytes + byte] = value;
      continue;
    }
    uint8_t& low = part[step % 4 * kStepBytes + byte];
    low = static_cast<uint8_t>(low | (value & 15) << (step / 4 * 4));
    if (format.high_bytes == 64) {
      high[byte] = static_cast<uint8_t>(high[byte] | (value >> 4) << step);
    } else if (format.high_bytes == 128) {
      uint8_t& pairs = high[step / 4 * kStepBytes + byte];
      pairs = static_cast<uint8_t>(pairs | (value >> 4) << (step % 4 * 2));
    }
  }
}

// What place_quants wrote for one k.
int32_t quant_at(const PackedFormat& format, const uint8_t* part, int64_t lane, int64_t k) {
  const int64_t step = k / kStepLen;
  const int64_t byte = lane * kStepLen + k % kStepLen;
  if (format.low_bytes == 512) return static_cast<int8_t>(part[step * kStepBytes + byte]);
  const int32_t low = (part[step % 4 * kStepBytes + byte] >> (step / 4 * 4)) & 15;
  const uint8_t* high = part + format.low_bytes;
  if (format.high_bytes == 64) return low | ((high[byte] >> step) & 1) << 4;
  if (format.high_bytes == 128) {
    return low | ((high[step / 4 * kStepBytes + byte] >> (step % 4 * 2)) & 3) << 4;
  }
  return low;
}

// The 12 bytes of 6-bit scales and mins of Q4_K and Q5_K: those of parts 0 … 3 in the low six bits
// of bytes 0 … 3 and 4 … 7; of parts 4 … 7 the low nibbles in bytes 8 … 11, the two bits above them
// at the top of the bytes of parts 0 … 3.
std::pair<uint8_t, uint8_t> k_scale_min(const uint8_t* packed, int64_t part) {
  const auto byte = [](int value) { return static_cast<uint8_t>(value); };
  if (part < 4) return {byte(packed[part] & 63), byte(packed[part + 4] & 63)};
  return {byte((packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4),
          byte((packed[part + 4] >> 4) | (packed[part] >> 6) << 4)};
}

void place_scales(DType type, const PackedFormat& format, const uint8_t* from, int64_t lane,
                  uint8_t* block) {
  uint8_t* after_quants = block + format.head_bytes + format.low_bytes + format.high_bytes;
  const auto part_scales = [&](int64_t part) { return after_quants + part * format.part_bytes(); };
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      copy_half(after_quants + lane * 2, from);
      break;
    case DType::kQ4_1:
    case DType::kQ5_1:
      copy_half(after_quants + lane * 2, from);
      copy_half(after_quants + kHalfBytes + lane * 2, from + 2);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K:
      copy_half(block + lane * 2, from);
      copy_half(block + kHalfBytes + lane * 2, from + 2);
      for (int64_t part = 0; part < kParts; ++part) {
        const auto [scale, min] = k_scale_min(from + 4, part);
        part_scales(part)[lane] = scale;
        part_scales(part)[kGroupRows + lane] = min;
      }
      break;
    case DType::kQ6_K:
      copy_half(block + lane * 2, from + 208);
      for (int64_t part = 0; part < kParts; ++part) {
        part_scales(part)[lane] = from[192 + part * 2];
        part_scales(part)[kGroupRows + lane] = from[192 + part * 2 + 1];
      }
      break;
  }
}

// A value is scale * (quant - offset) + min. Where a type has no min it is the negative zero, which
// changes no value, not even the sign of a zero.
constexpr float kNoMin = -0.0F;

struct Scale {
  float scale;
  float min;
  int32_t offset;
};

Scale scale_at(DType type, const PackedFormat& format, const uint8_t* block, int64_t part,
               int64_t lane, int64_t k) {
  const uint8_t* scales =
      block + format.head_bytes + part * format.part_bytes() + format.low_bytes + format.high_bytes;
  const float d = half_at((format.head_bytes > 0 ? block : scales) + lane * 2);
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
    case DType::kQ4_0:
      return {d, kNoMin, 8};
    case DType::kQ5_0:
      return {d, kNoMin, 16};
    case DType::kQ8_0:
      return {d, kNoMin, 0};
    case DType::kQ4_1:
    case DType::kQ5_1:
      return {d, half_at(scales + kHalfBytes + lane * 2), 0};
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {
          d * static_cast<float>(scales[lane]),
          -half_at(block + kHalfBytes + lane * 2) * static_cast<float>(scales[kGroupRows + lane]),
          0};
    case DType::kQ6_K: {
      const uint8_t* half = scales + k / 16 * kGroupRows;
      return {d * static_cast<float>(static_cast<int8_t>(half[lane])), kNoMin, 32};
    }
  }
  return {0, 0, 0};
}

void pack_float_row(const Segment& segment, const uint8_t* row, int64_t lane, int64_t k,
                    uint8_t* group) {
  const int64_t width = dtype_info(segment.type).block_bytes;
  for (int64_t i = 0; i < k; ++i) {
    std::memcpy(group + (i * kGroupRows + lane) * width, row + i * width,
                static_cast<size_t>(width));
  }
}

void pack_row(const Segment& segment, const uint8_t* row, int64_t lane, int64_t k, uint8_t* group) {
  if (!is_quantized(segment.type)) return pack_float_row(segment, row, lane, k, group);
  const PackedFormat format = packed_format(segment.type);
  const int64_t n_parts = format.block_len / kPartLen;
  for (int64_t b = 0; b < k / format.block_len; ++b) {
    const uint8_t* from = row + b * dtype_info(segment.type).block_bytes;
    uint8_t* block = group + b * format.block_bytes();
    place_scales(segment.type, format, from, lane, block);
    for (int64_t part = 0; part < n_parts; ++part) {
      place_quants(format, source_quants(segment.type, from, part), lane,
                   block + format.head_bytes + part * format.part_bytes());
    }
  }
}

void unpack_float_row(DType type, const uint8_t* group, int64_t lane, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = i * kGroupRows + lane;
    uint16_t bits = 0;
    if (type == DType::kF32) {
      std::memcpy(out + i, group + at * 4, sizeof(float));
      continue;
    }
    std::memcpy(&bits, group + at * 2, sizeof(bits));
    out[i] = type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

absl::Status check_sources(std::span<const WeightSource> sources, int32_t rank, int32_t world) {
  if (sources.empty()) return base::invalid_argument("a packed weight needs a source");
  if (world < 1 || rank < 0 || rank >= world) {
    return base::invalid_argument("rank {} of {} is none", rank, world);
  }
  for (const WeightSource& source : sources) {
    const DTypeInfo info = dtype_info(source.type);
    if (source.data == nullptr || source.n <= 0 || source.k <= 0) {
      return base::invalid_argument("a weight of {} x {} is empty", source.n, source.k);
    }
    if (source.k != sources[0].k) {
      return base::invalid_argument("stacked weights have {} and {} columns", sources[0].k,
                                    source.k);
    }
    if (source.k % info.block_len != 0) {
      return base::invalid_argument("{} columns are no multiple of the {} of a block of {}",
                                    source.k, info.block_len, info.name);
    }
    if (source.n % world != 0) {
      return base::invalid_argument("{} rows do not divide over {} ranks", source.n, world);
    }
  }
  return absl::OkStatus();
}

}  // namespace

CpuWeight::CpuWeight(Buffer memory, std::vector<Segment> segments, int64_t k)
    : memory_(std::move(memory)), segments_(std::move(segments)), k_(k) {
  for (const Segment& segment : segments_) {
    n_ += segment.n;
    n_groups_ += segment.n_groups;
    any_quantized_ = any_quantized_ || is_quantized(segment.type);
  }
}

void CpuWeight::unpack_row(int64_t row, float* out) const {
  CHECK(row >= 0 && row < n_);
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), row,
      [](int64_t wanted, const Segment& segment) { return wanted < segment.first_row; });
  const Segment& segment = *std::prev(after);
  row -= segment.first_row;
  const uint8_t* group = segment.data + row / kGroupRows * segment.group_bytes;
  const int64_t lane = row % kGroupRows;
  if (!is_quantized(segment.type)) return unpack_float_row(segment.type, group, lane, k_, out);
  const PackedFormat format = packed_format(segment.type);
  const int64_t half = kPartLen / 2;
  for (int64_t at = 0; at < k_; at += half, out += half) {
    const uint8_t* block = group + at / format.block_len * format.block_bytes();
    const int64_t part = at % format.block_len / kPartLen;
    const int64_t begin = at % kPartLen;
    const Scale s = scale_at(segment.type, format, block, part, lane, begin);
    const uint8_t* quants = block + format.head_bytes + part * format.part_bytes();
    for (int64_t i = 0; i < half; ++i) {
      const int32_t q = quant_at(format, quants, lane, begin + i) - s.offset;
      out[i] = s.scale * static_cast<float>(q) + s.min;
    }
  }
}

absl::StatusOr<std::unique_ptr<CpuWeight>> pack_weight(ThreadPool& pool,
                                                       std::span<const WeightSource> sources,
                                                       int32_t rank, int32_t world) {
  RETURN_IF_ERROR(check_sources(sources, rank, world));
  const int64_t k = sources[0].k;
  std::vector<Segment> segments;
  int64_t n = 0, n_groups = 0, bytes = 0;
  for (const WeightSource& source : sources) {
    Segment segment;
    segment.type = source.type;
    segment.n = source.n / world;
    segment.first_row = n;
    segment.first_group = n_groups;
    segment.n_groups = (segment.n + kGroupRows - 1) / kGroupRows;
    segment.group_bytes = packed_group_bytes(source.type, k);
    segments.push_back(segment);
    n += segment.n;
    n_groups += segment.n_groups;
    bytes += (segment.n_groups * segment.group_bytes + 63) / 64 * 64;
  }
  ASSIGN_OR_RETURN(Buffer memory, map_memory(static_cast<size_t>(bytes)));
  uint8_t* data = memory.as<uint8_t>();
  for (size_t s = 0; s < segments.size(); ++s) {
    Segment& segment = segments[s];
    segment.data = data;
    const int64_t row_bytes = dtype_row_bytes(segment.type, k);
    const uint8_t* rows = sources[s].data + rank * segment.n * row_bytes;
    pool.parallel_for(segment.n_groups, 1, [&](int64_t begin, int64_t end, int32_t) {
      for (int64_t row = begin * kGroupRows; row < std::min(end * kGroupRows, segment.n); ++row) {
        pack_row(segment, rows + row * row_bytes, row % kGroupRows, k,
                 data + row / kGroupRows * segment.group_bytes);
      }
    });
    data += (segment.n_groups * segment.group_bytes + 63) / 64 * 64;
  }
  return std::make_unique<CpuWeight>(std::move(memory), std::move(segments), k);
}

}  // namespace pagoda::cpu
