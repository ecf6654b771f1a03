// Ops that go row by row: normalisation, activation, rotary positions, gathering. Compiled once for
// each Isa; includes nothing, needs isa.h, simd_*.h and vec_math.inl.h.
//
// Within a row the order of every sum is fixed by the row's length alone.

namespace pagoda::cpu::PAGODA_ISA {

// Rows of one piece of work: enough that waking another worker is worth it.
inline int64_t rows_chunk(int64_t row_len) { return std::max<int64_t>(1, 8192 / row_len); }

PAGODA_INLINE float sum_of_squares(const float* x, int32_t n) {
  F32x16 sums[4] = {F32x16::zero(), F32x16::zero(), F32x16::zero(), F32x16::zero()};
  int32_t i = 0;
  for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const F32x16 v = F32x16::load(x + i + 16 * j);
      sums[j] = fma(v, v, sums[j]);
    }
  }
  for (; i < n; i += 16) {
    const F32x16 v = F32x16::load_first(x + i, std::min(16, n - i));
    sums[0] = fma(v, v, sums[0]);
  }
  return reduce_add((sums[0] + sums[2]) + (sums[1] + sums[3]));
}

inline void run_rms_norm(ThreadPool& pool, const ops::RmsNorm& args) {
  auto* const rows_out = static_cast<float*>(args.out);
  const auto body = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t r = begin; r < end; ++r) {
      const float* x = args.x + r * args.dim;
      float* out = rows_out + r * args.dim;
      const float mean = sum_of_squares(x, args.dim) / static_cast<float>(args.dim);
      const F32x16 factor = F32x16::set1(1.0F / std::sqrt(mean + args.eps));
      for (int32_t i = 0; i < args.dim; i += 16) {
        const int32_t n = std::min(16, args.dim - i);
        const F32x16 scaled = F32x16::load_first(x + i, n) * factor;
        (scaled * F32x16::load_first(args.weight + i, n)).store_first(out + i, n);
      }
    }
  };
  pool.parallel_for(args.n_rows, rows_chunk(args.dim), body);
}

inline void run_silu_mul(ThreadPool& pool, const ops::SiluMul& args) {
  const auto* const gate_up = static_cast<const float*>(args.gate_up);
  auto* const rows_out = static_cast<float*>(args.out);
  const auto body = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = gate_up + r * 2 * args.dim;
      const float* up = gate + args.dim;
      float* out = rows_out + r * args.dim;
      const F32x16 one = F32x16::set1(1.0F);
      for (int32_t i = 0; i < args.dim; i += 16) {
        const int32_t n = std::min(16, args.dim - i);
        const F32x16 g = F32x16::load_first(gate + i, n);
        const F32x16 silu = g / (one + exp(F32x16::zero() - g));
        (silu * F32x16::load_first(up + i, n)).store_first(out + i, n);
      }
    }
  };
  pool.parallel_for(args.n_rows, rows_chunk(args.dim * 4), body);
}

inline void run_rope_angles(ThreadPool& pool, const ops::RopeAngles& args) {
  const int32_t half = args.rope_dim / 2;
  const auto body = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = args.cos_sin + r * args.rope_dim;
      for (int32_t i = 0; i < half; ++i) {
        const double angle = double{args.inv_freq[i]} * args.positions[r];
        out[i] = static_cast<float>(std::cos(angle) * args.scale);
        out[half + i] = static_cast<float>(std::sin(angle) * args.scale);
      }
    }
  };
  if (args.rope_dim > 0) pool.parallel_for(args.n_rows, rows_chunk(args.rope_dim * 8), body);
}

// Pairs `step` and `distance` say where the partners of pair i are: i * step and that + distance.
template <int step>
PAGODA_INLINE void rotate_pairs(float* __restrict head, const float* __restrict cos_sin,
                                int32_t half, int32_t distance) {
  for (int32_t i = 0; i < half; ++i) {
    const float x = head[i * step];
    const float y = head[i * step + distance];
    head[i * step] = x * cos_sin[i] - y * cos_sin[half + i];
    head[i * step + distance] = y * cos_sin[i] + x * cos_sin[half + i];
  }
}

inline void rotate_head(float* head, const float* cos_sin, int32_t rope_dim, ops::RopePairs pairs) {
  switch (pairs) {
    case ops::RopePairs::kInterleaved:
      rotate_pairs<2>(head, cos_sin, rope_dim / 2, 1);
      break;
    case ops::RopePairs::kHalves:
      rotate_pairs<1>(head, cos_sin, rope_dim / 2, rope_dim / 2);
      break;
  }
}

// A key goes down a column of its page, a value along a row.
PAGODA_INLINE void write_f16(const float* key, const float* value, int32_t dim, int32_t token,
                             uint16_t* keys, uint16_t* values) {
  values += int64_t{token} * dim;
  for (int32_t d = 0; d < dim; d += 16) {
    const int32_t n = std::min(16, dim - d);
    uint16_t halves[16];
    F32x16::load_first(value + d, n).store_f16(halves);
    std::memcpy(values + d, halves, static_cast<size_t>(n) * sizeof(uint16_t));
    F32x16::load_first(key + d, n).store_f16(halves);
    for (int32_t i = 0; i < n; ++i) keys[(d + i) * kPageTokens + token] = halves[i];
  }
}

inline void write_f32(const float* key, const float* value, int32_t dim, int32_t token, float* keys,
                      float* values) {
  std::memcpy(values + int64_t{token} * dim, value, static_cast<size_t>(dim) * sizeof(float));
  for (int32_t d = 0; d < dim; ++d) keys[d * kPageTokens + token] = key[d];
}

inline void write_kv_row(const ops::RopeKvWrite& args, const float* k, const float* v,
                         const ops::KvSlot& slot) {
  const KvView& kv = *args.kv;
  const int32_t token = slot.offset % kPageTokens;
  for (int32_t h = 0; h < kv.n_kv_heads; ++h) {
    uint8_t* keys = kv.page(slot.block, args.layer, KvPart::kKey, h, slot.offset);
    uint8_t* values = kv.page(slot.block, args.layer, KvPart::kValue, h, slot.offset);
    const float* key = k + int64_t{h} * kv.head_dim;
    const float* value = v + int64_t{h} * kv.head_dim;
    if (kv.dtype == DType::kF16) {
      write_f16(key, value, kv.head_dim, token, reinterpret_cast<uint16_t*>(keys),
                reinterpret_cast<uint16_t*>(values));
    } else {
      write_f32(key, value, kv.head_dim, token, reinterpret_cast<float*>(keys),
                reinterpret_cast<float*>(values));
    }
  }
}

inline void run_rope_kv_write(ThreadPool& pool, const ops::RopeKvWrite& args) {
  const KvView& kv = *args.kv;
  auto* const qkv = static_cast<float*>(args.qkv);
  CHECK(kv.page_layout == PageLayout::kKTransposed);
  CHECK(kv.dtype == DType::kF16 || kv.dtype == DType::kF32);
  CHECK_LE(args.rope_dim, kv.head_dim);
  const int64_t row_len = int64_t{args.n_heads + 2 * kv.n_kv_heads} * kv.head_dim;
  const auto body = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t r = begin; r < end; ++r) {
      float* q = qkv + r * row_len;
      const float* cos_sin = args.cos_sin + r * args.rope_dim;
      for (int32_t h = 0; h < args.n_heads + kv.n_kv_heads; ++h) {
        rotate_head(q + int64_t{h} * kv.head_dim, cos_sin, args.rope_dim, args.pairs);
      }
      const float* k = q + int64_t{args.n_heads} * kv.head_dim;
      write_kv_row(args, k, k + int64_t{kv.n_kv_heads} * kv.head_dim, args.slots[r]);
    }
  };
  pool.parallel_for(args.n_rows, rows_chunk(row_len * 2), body);
}

inline void run_gather_rows(ThreadPool& pool, const ops::GatherRows& args) {
  const auto* const x = static_cast<const uint8_t*>(args.x);
  auto* const out = static_cast<uint8_t*>(args.out);
  const auto body = [&](int64_t begin, int64_t end, int32_t) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(out + i * args.row_bytes, x + args.rows[i] * args.row_bytes,
                  static_cast<size_t>(args.row_bytes));
    }
  };
  const int64_t row_floats = (args.row_bytes + 3) / 4;
  pool.parallel_for(args.n_rows, rows_chunk(row_floats), body);
}

}  // namespace pagoda::cpu::PAGODA_ISA
