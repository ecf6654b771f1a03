// Weights in the order in which the CPU multiplies them, at the bit width that they have in the
// file, and exactly: unpacking gives the values that the GGUF specification says.
//
// Rows (outputs) go in groups of 16. Of a float type a group is [k][16 rows] in its own type. Of a
// quantised type it is a chain of blocks, each the 16 rows of 32 or 256 consecutive k:
//
//   Q4_0  [low 256][d 32]                Q4_1  [low 256][d 32][m 32]
//   Q5_0  [low 256][high 64][d 32]       Q5_1  [low 256][high 64][d 32][m 32]
//   Q8_0  [bytes 512][d 32]
//   Q4_K  [d 32][dmin 32] and 8 times [low 256][scales 16][mins 16]
//   Q5_K  [d 32][dmin 32] and 8 times [low 256][high 64][scales 16][mins 16]
//   Q6_K  [d 32] and 8 times [low 256][high 128][scales of k 0-15 16][scales of k 16-31 16]
//
// d, dmin and m are halves, one per row; scales and mins are bytes (6 bits of Q4_K and Q5_K, signed
// in Q6_K). The 32 k of a part fall into 8 steps of 4 k. What a dot instruction takes is a step: 64
// bytes, byte 4 row + i for the k of number i of the step. Load j (0 … 3) of "low" holds step j in
// its low nibbles and step j + 4 in its high ones. Bit s of a byte of the 64-byte "high" is the
// fifth bit of step s; of the 128 bytes of Q6_K bits 2 j and 2 j + 1 of the first 64 belong to step
// j, of the others to step j + 4. "bytes" are the 8 steps one after the other, signed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace pagoda::cpu {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kPartLen = 32;  // k of a part; activations are quantised by as many

// Where things are in a packed block of a quantised type; all in bytes but block_len.
struct PackedFormat {
  int32_t block_len;    // k of a block: a part, or eight
  int32_t head_bytes;   // before the parts: d and dmin of 256 k
  int32_t low_bytes;    // of a part: nibbles or whole bytes
  int32_t high_bytes;   // of a part: the bits above the nibbles
  int32_t scale_bytes;  // of a part

  constexpr int32_t part_bytes() const { return low_bytes + high_bytes + scale_bytes; }
  constexpr int64_t block_bytes() const {
    return head_bytes + int64_t{block_len} / kPartLen * part_bytes();
  }
};

constexpr PackedFormat packed_format(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {1, 0, 0, 0, 0};
    case DType::kQ4_0:
      return {32, 0, 256, 0, 32};
    case DType::kQ4_1:
      return {32, 0, 256, 0, 64};
    case DType::kQ5_0:
      return {32, 0, 256, 64, 32};
    case DType::kQ5_1:
      return {32, 0, 256, 64, 64};
    case DType::kQ8_0:
      return {32, 0, 512, 0, 32};
    case DType::kQ4_K:
      return {256, 64, 256, 0, 32};
    case DType::kQ5_K:
      return {256, 64, 256, 64, 32};
    case DType::kQ6_K:
      return {256, 32, 256, 128, 32};
  }
  return {1, 0, 0, 0, 0};
}

// Bytes of 16 rows of k.
constexpr int64_t packed_group_bytes(DType type, int64_t k) {
  if (!is_quantized(type)) return k * kGroupRows * dtype_info(type).block_bytes;
  const PackedFormat format = packed_format(type);
  return k / format.block_len * format.block_bytes();
}

// The rows that came from one source. Rows that fill up the last group are zero.
struct Segment {
  DType type = DType::kF32;
  int64_t n = 0;            // rows
  int64_t first_row = 0;    // of the stacked matrix
  int64_t first_group = 0;  // groups are counted through all segments
  int64_t n_groups = 0;
  int64_t group_bytes = 0;
  const uint8_t* data = nullptr;
};

class CpuWeight final : public PackedWeight {
 public:
  CpuWeight(Buffer memory, std::vector<Segment> segments, int64_t k);

  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  int64_t bytes() const override { return static_cast<int64_t>(memory_.bytes()); }

  std::span<const Segment> segments() const { return segments_; }
  int64_t n_groups() const { return n_groups_; }
  bool any_quantized() const { return any_quantized_; }

  // The values of a row, 0 <= row < n().
  void unpack_row(int64_t row, float* out) const;  // [k]

 private:
  Buffer memory_;
  std::vector<Segment> segments_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  int64_t n_groups_ = 0;
  bool any_quantized_ = false;
};

// See Backend::pack. Of each source, rank r keeps rows [n r / world, n (r + 1) / world).
// kInvalidArgument also when a source has no rows, its n is no multiple of world or its k none of
// the block length.
absl::StatusOr<std::unique_ptr<CpuWeight>> pack_weight(ThreadPool& pool,
                                                       std::span<const WeightSource> sources,
                                                       int32_t rank, int32_t world);

}  // namespace pagoda::cpu
