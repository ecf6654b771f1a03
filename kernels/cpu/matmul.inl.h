// y = x W^T for packed weights. Compiled once for each Isa; includes nothing, needs isa.h and
// simd_*.h.
//
// Against quantised weights a row of x is rounded to int8 by parts of 32: the dot product of a part
// is then exact in integers, and one float operation adds it to the output with both scales. Float
// weights meet x as it is. A kernel computes 16 outputs (a group) of up to kTileRows rows in one
// pass over the group's weights, which it unpacks once.
//
// Each output is summed over its k in ascending order, one fused multiply-add after the other, with
// nothing else in between: no choice of tile, chunk or thread changes a bit.

namespace pagoda::cpu::PAGODA_ISA {

// A part of a row of x. Zero points and minima of the weights multiply sums of the activations,
// which are therefore kept ready, already times the zero point where that is an integer.
struct alignas(64) ActivationPart {
  int8_t q[kPartLen];
  float scale;
  float scaled_sum;  // scale * (sum of q)
  int32_t minus_8;   // -8 * (sum of q), and so on
  int32_t minus_16;
  int32_t minus_signed;  // by kSignedOffset
  int32_t minus_32[2];   // -32 * the sums of both halves
};
static_assert(sizeof(ActivationPart) == 64);

// Below this the inverse of the scale would overflow; against any weight such a part is nothing.
inline constexpr float kLeastAmax = 1e-30F;
// Rows whose quantised form stays in the second-level cache while all the weights pass.
inline constexpr int32_t kSlabRows = 512;
// With so few rows a second fork and join costs more than one thread quantising them all.
inline constexpr int32_t kSerialRows = 4;

// Asked before anything is rounded, as an integer can hold neither an infinity nor a NaN.
inline bool all_finite(const float* x, int64_t k) {
  const F32x16 zero = F32x16::zero();
  F32x16 first = zero, second = zero;  // zero until a value is not finite, then NaN for good
  for (int64_t i = 0; i < k; i += kPartLen) {
    first = fma(F32x16::load(x + i), zero, first);
    second = fma(F32x16::load(x + i + 16), zero, second);
  }
  return reduce_add(first + second) == 0;
}

// A row with a value that is not finite makes all its outputs NaN: integers of zero, whose scale
// no weight can bring back.
inline void quantize_row(const float* x, int64_t k, ActivationPart* parts) {
  if (!all_finite(x, k)) {
    ActivationPart lost = {};
    lost.scale = lost.scaled_sum = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(parts, k / kPartLen, lost);
    return;
  }
  for (int64_t p = 0; p < k / kPartLen; ++p, x += kPartLen, ++parts) {
    const F32x16 first = F32x16::load(x), second = F32x16::load(x + 16);
    const float amax = reduce_max(max(abs(first), abs(second)));
    const F32x16 inverse = F32x16::set1(amax < kLeastAmax ? 0.0F : 127.0F / amax);
    const I32x16 first_q = round_to_i32(first * inverse);
    const I32x16 second_q = round_to_i32(second * inverse);
    first_q.store_s8(parts->q);
    second_q.store_s8(parts->q + 16);
    const int32_t first_sum = reduce_add(first_q), second_sum = reduce_add(second_q);
    const int32_t sum = first_sum + second_sum;
    parts->scale = amax < kLeastAmax ? 0.0F : amax / 127.0F;
    parts->scaled_sum = parts->scale * static_cast<float>(sum);
    parts->minus_8 = -8 * sum;
    parts->minus_16 = -16 * sum;
    parts->minus_signed = -kSignedOffset * sum;
    parts->minus_32[0] = -32 * first_sum;
    parts->minus_32[1] = -32 * second_sum;
  }
}

// Where the sums of a group go.
struct GroupOutput {
  float* y;           // the group's first output of the tile's first row
  int64_t stride;     // from row to row
  const float* bias;  // of the group, or null
  int32_t n;          // outputs that exist: 16, or fewer in a segment's last group
  bool accumulate;
};

template <int R>
PAGODA_INLINE void store_group(const F32x16 (&sums)[R], const GroupOutput& out) {
  // Unrolled, or the sums could not stay in registers.
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* y = out.y + r * out.stride;
    F32x16 value = sums[r];
    if (out.n == kGroupRows) {
      if (out.bias != nullptr) value = value + F32x16::load(out.bias);
      if (out.accumulate) value = F32x16::load(y) + value;
      value.store(y);
    } else {
      if (out.bias != nullptr) value = value + F32x16::load_first(out.bias, out.n);
      if (out.accumulate) value = F32x16::load_first(y, out.n) + value;
      value.store_first(y, out.n);
    }
  }
}

// What the kernels must know of a type when they are compiled.
template <DType type>
struct Quant {
  static constexpr PackedFormat kFormat = packed_format(type);
  static constexpr bool kBytes = type == DType::kQ8_0;
  static constexpr bool kLarge = kFormat.block_len == 256;
  // The two halves of a part have scales of their own.
  static constexpr bool kHalves = type == DType::kQ6_K;
  static constexpr bool kMins =
      type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K || type == DType::kQ5_K;

  // Integer sums of a part: of each half of its own where the scales want it, and with few rows,
  // since one chain of dot products alone would wait for itself.
  template <int R>
  static constexpr int kSums = kHalves || R <= 2 ? 2 : 1;

  // What the integer sum starts with, so that the weights' zero point cancels.
  static PAGODA_INLINE I32x16 start(const ActivationPart& a, int half) {
    if constexpr (type == DType::kQ4_0) return I32x16::set1(half == 0 ? a.minus_8 : 0);
    if constexpr (type == DType::kQ5_0) return I32x16::set1(half == 0 ? a.minus_16 : 0);
    if constexpr (kBytes) return I32x16::set1(half == 0 ? a.minus_signed : 0);
    if constexpr (kHalves) return I32x16::set1(a.minus_32[half]);
    return I32x16::zero();
  }
};

// Steps j and j + 4 of a part, one of each half, for all rows of a tile.
template <DType type, int j, int R, int n_sums>
PAGODA_INLINE void two_steps(const uint8_t* part, const ActivationPart* const (&a)[R],
                             I32x16 (&sums)[n_sums][R]) {
  using Q = Quant<type>;
  constexpr int kLast = n_sums - 1;
  if constexpr (Q::kBytes) {
    const U8x64 first = from_signed(U8x64::load(part + j * 64));
    const U8x64 second = from_signed(U8x64::load(part + (j + 4) * 64));
    for (int r = 0; r < R; ++r) sums[0][r] = dot_s8s8(sums[0][r], first, a[r]->q + 4 * j);
    for (int r = 0; r < R; ++r) {
      sums[kLast][r] = dot_s8s8(sums[kLast][r], second, a[r]->q + 16 + 4 * j);
    }
  } else {
    const U8x64 packed = U8x64::load(part + j * 64);
    U8x64 first = low_nibbles(packed), second = high_nibbles(packed);
    if constexpr (Q::kFormat.high_bytes == 64) {
      const U8x64 bits = U8x64::load(part + 256);
      first = or_bits<4 - j, 0x10>(first, bits);
      second = or_bits<-j, 0x10>(second, bits);
    } else if constexpr (Q::kFormat.high_bytes == 128) {
      first = or_bits<4 - 2 * j, 0x30>(first, U8x64::load(part + 256));
      second = or_bits<4 - 2 * j, 0x30>(second, U8x64::load(part + 320));
    }
    for (int r = 0; r < R; ++r) sums[0][r] = dot_u7s8(sums[0][r], first, a[r]->q + 4 * j);
    for (int r = 0; r < R; ++r) {
      sums[kLast][r] = dot_u7s8(sums[kLast][r], second, a[r]->q + 16 + 4 * j);
    }
  }
}

// Adds a part to the outputs. d and dmin are those of a block of 256, unused elsewhere.
template <DType type, int R>
PAGODA_INLINE void add_part(const uint8_t* part, const ActivationPart* const (&a)[R], F32x16 d,
                            F32x16 dmin, F32x16 (&out)[R]) {
  using Q = Quant<type>;
  constexpr int kSums = Q::template kSums<R>;
  I32x16 sums[kSums][R];
  for (int half = 0; half < kSums; ++half) {
    for (int r = 0; r < R; ++r) sums[half][r] = Q::start(*a[r], half);
  }
  two_steps<type, 0>(part, a, sums);
  two_steps<type, 1>(part, a, sums);
  two_steps<type, 2>(part, a, sums);
  two_steps<type, 3>(part, a, sums);

  const uint8_t* scales = part + Q::kFormat.low_bytes + Q::kFormat.high_bytes;
  F32x16 scale, other;  // other: the second half's scale or the minimum
  if constexpr (Q::kHalves) {
    scale = d * to_f32(I32x16::load_s8(scales));
    other = d * to_f32(I32x16::load_s8(scales + 16));
  } else if constexpr (Q::kLarge) {
    scale = d * to_f32(I32x16::load_u8(scales));
    other = dmin * to_f32(I32x16::load_u8(scales + 16));
  } else {
    scale = F32x16::load_f16(reinterpret_cast<const uint16_t*>(scales));
    if constexpr (Q::kMins)
      other = F32x16::load_f16(reinterpret_cast<const uint16_t*>(scales + 32));
  }
  for (int r = 0; r < R; ++r) {
    const F32x16 a_scale = F32x16::set1(a[r]->scale);
    if constexpr (Q::kHalves) {
      out[r] = fma(to_f32(sums[0][r]), scale * a_scale, out[r]);
      out[r] = fma(to_f32(sums[1][r]), other * a_scale, out[r]);
    } else {
      I32x16 sum = sums[0][r];
      if constexpr (kSums == 2) sum = sum + sums[1][r];
      out[r] = fma(to_f32(sum), scale * a_scale, out[r]);
      if constexpr (Q::kMins) out[r] = fma(other, F32x16::set1(a[r]->scaled_sum), out[r]);
    }
  }
}

template <DType type, int R>
void quantized_group(const uint8_t* w, const ActivationPart* rows, int64_t n_parts,
                     const GroupOutput& target) {
  constexpr PackedFormat kFormat = packed_format(type);
  constexpr int32_t kParts = kFormat.block_len / static_cast<int32_t>(kPartLen);
  // Far enough ahead to hide the memory, near enough to stay in the first-level cache.
  constexpr int64_t kAhead = 4096;
  F32x16 out[R];
  const ActivationPart* a[R];
  for (int r = 0; r < R; ++r) {
    out[r] = F32x16::zero();
    a[r] = rows + r * n_parts;
  }
  for (int64_t p = 0; p < n_parts; p += kParts) {
    F32x16 d = F32x16::zero(), dmin = F32x16::zero();
    if constexpr (kFormat.head_bytes > 0) {
      d = F32x16::load_f16(reinterpret_cast<const uint16_t*>(w));
      if constexpr (kFormat.head_bytes == 64) {
        dmin = F32x16::load_f16(reinterpret_cast<const uint16_t*>(w + 32));
        dmin = F32x16::zero() - dmin;
      }
      w += kFormat.head_bytes;
    }
    for (int32_t i = 0; i < kParts; ++i) {
      for (int32_t line = 0; line < kFormat.part_bytes(); line += 64) prefetch(w + kAhead + line);
      add_part<type, R>(w, a, d, dmin, out);
      w += kFormat.part_bytes();
      for (int r = 0; r < R; ++r) ++a[r];
    }
  }
  store_group<R>(out, target);
}

template <DType type, int R>
void float_group(const uint8_t* w, const float* rows, int64_t k, const GroupOutput& target) {
  constexpr int32_t kBytes = static_cast<int32_t>(kGroupRows) * dtype_info(type).block_bytes;
  constexpr int64_t kAhead = 4096;
  F32x16 out[R];
  for (int r = 0; r < R; ++r) out[r] = F32x16::zero();
  for (int64_t i = 0; i < k; ++i, w += kBytes) {
    F32x16 weight;
    if constexpr (type == DType::kF32) weight = F32x16::load(reinterpret_cast<const float*>(w));
    if constexpr (type == DType::kF16) {
      weight = F32x16::load_f16(reinterpret_cast<const uint16_t*>(w));
    }
    if constexpr (type == DType::kBF16) {
      weight = F32x16::load_bf16(reinterpret_cast<const uint16_t*>(w));
    }
    prefetch(w + kAhead);
    for (int r = 0; r < R; ++r) out[r] = fma(weight, F32x16::set1(rows[r * k + i]), out[r]);
  }
  store_group<R>(out, target);
}

// A matmul's rows, and the same rows in int8 if any segment wants them.
struct MatmulRows {
  const float* x;               // [n_rows, k]
  const ActivationPart* parts;  // [n_rows, k / 32]
  int64_t k;

  MatmulRows from(int64_t row) const { return {x + row * k, parts + row * (k / kPartLen), k}; }
};

template <DType type, int R>
void one_group(const uint8_t* w, const MatmulRows& rows, const GroupOutput& target) {
  if constexpr (is_quantized(type)) {
    quantized_group<type, R>(w, rows.parts, rows.k / kPartLen, target);
  } else {
    float_group<type, R>(w, rows.x, rows.k, target);
  }
}

using GroupKernel = void (*)(const uint8_t* w, const MatmulRows& rows, const GroupOutput& target);
// For tiles of 1, 2, 4 … rows; other numbers are put together from these, which costs less than the
// building of kernels for all of them.
inline constexpr size_t kTileSizes = std::bit_width(static_cast<unsigned>(kTileRows));
using TileKernels = std::array<GroupKernel, kTileSizes>;

template <DType type, size_t... log2>
constexpr TileKernels tile_kernels(std::index_sequence<log2...>) {
  return {one_group<type, 1 << log2>...};
}
template <DType type>
inline constexpr TileKernels kTileKernels =
    tile_kernels<type>(std::make_index_sequence<kTileSizes>());

inline const TileKernels& tile_kernels_of(DType type) {
  switch (type) {
    case DType::kF32:
      return kTileKernels<DType::kF32>;
    case DType::kF16:
      return kTileKernels<DType::kF16>;
    case DType::kBF16:
      return kTileKernels<DType::kBF16>;
    case DType::kQ4_0:
      return kTileKernels<DType::kQ4_0>;
    case DType::kQ4_1:
      return kTileKernels<DType::kQ4_1>;
    case DType::kQ5_0:
      return kTileKernels<DType::kQ5_0>;
    case DType::kQ5_1:
      return kTileKernels<DType::kQ5_1>;
    case DType::kQ8_0:
      return kTileKernels<DType::kQ8_0>;
    case DType::kQ4_K:
      return kTileKernels<DType::kQ4_K>;
    case DType::kQ5_K:
      return kTileKernels<DType::kQ5_K>;
    case DType::kQ6_K:
      return kTileKernels<DType::kQ6_K>;
  }
  return kTileKernels<DType::kF32>;
}

// Groups [begin, end) of a segment for rows [first_row, first_row + n_rows) of the matmul. A tile
// of rows passes all the groups before the next tile: both stay in the caches.
inline void multiply_groups(const ops::Matmul& args, const Segment& segment, int64_t begin,
                            int64_t end, const MatmulRows& rows, int32_t first_row,
                            int32_t n_rows) {
  const TileKernels& kernels = tile_kernels_of(segment.type);
  auto* const y = static_cast<float*>(args.y);
  const int64_t stride = args.weight->n();
  for (int32_t row = 0, tile_rows = 0; row < n_rows; row += tile_rows) {
    const uint32_t rows_left = static_cast<uint32_t>(std::min(kTileRows, n_rows - row));
    const GroupKernel kernel = kernels[static_cast<size_t>(std::bit_width(rows_left)) - 1];
    tile_rows = static_cast<int32_t>(std::bit_floor(rows_left));
    const MatmulRows tile = rows.from(row);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t output = segment.first_row + group * kGroupRows;
      const GroupOutput target = {
          .y = y + (first_row + row) * stride + output,
          .stride = stride,
          .bias = args.bias == nullptr ? nullptr : args.bias + output,
          .n = static_cast<int32_t>(std::min(kGroupRows, segment.n - group * kGroupRows)),
          .accumulate = args.accumulate};
      kernel(segment.data + group * segment.group_bytes, tile, target);
    }
  }
}

inline void multiply_slab(ThreadPool& pool, const ops::Matmul& args, const CpuWeight& weight,
                          int32_t first_row, int32_t n_rows) {
  const int64_t k = weight.k();
  MatmulRows rows = {static_cast<const float*>(args.x) + first_row * k, nullptr, k};
  if (weight.any_quantized()) {
    const int64_t n_parts = k / kPartLen;
    auto* parts = static_cast<ActivationPart*>(
        pool.scratch(0, static_cast<size_t>(n_rows * n_parts) * sizeof(ActivationPart)));
    const int64_t chunk = n_rows <= kSerialRows ? n_rows : 4;
    pool.parallel_for(n_rows, chunk, [&](int64_t begin, int64_t end, int32_t) {
      for (int64_t r = begin; r < end; ++r) {
        quantize_row(rows.x + r * k, k, parts + r * n_parts);
      }
    });
    rows.parts = parts;
  }
  // Small pieces even out a worker that was late; of many rows a piece is long in any case.
  const int64_t most = n_rows > kTileRows ? 4 : 16;
  const int64_t chunk =
      std::clamp<int64_t>(weight.n_groups() / (int64_t{pool.n_threads()} * 8), 1, most);
  pool.parallel_for(weight.n_groups(), chunk, [&](int64_t begin, int64_t end, int32_t) {
    for (const Segment& segment : weight.segments()) {
      const int64_t from = std::max(begin - segment.first_group, int64_t{0});
      const int64_t to = std::min(end - segment.first_group, segment.n_groups);
      if (from < to) multiply_groups(args, segment, from, to, rows, first_row, n_rows);
    }
  });
}

inline void run_matmul(ThreadPool& pool, const ops::Matmul& args) {
  const CpuWeight& weight = static_cast<const CpuWeight&>(*args.weight);
  for (int32_t row = 0; row < args.n_rows; row += kSlabRows) {
    multiply_slab(pool, args, weight, row, std::min(kSlabRows, args.n_rows - row));
  }
}

}  // namespace pagoda::cpu::PAGODA_ISA
