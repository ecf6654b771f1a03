// Every op but sampling, in double precision. The loops follow the formulas; nothing is fused,
// blocked or skipped but what a mask hides.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/ref/ref_backend.h"

namespace pagoda::ref {
namespace {

int64_t page_index(const KvView& kv, KvPart part, int32_t token, int32_t d) {
  const bool transposed = part == KvPart::kKey && kv.page_layout == PageLayout::kKTransposed;
  return transposed ? int64_t{d} * kPageTokens + token : int64_t{token} * kv.head_dim + d;
}

const RefWeight& weight_of(const PackedWeight* weight) {
  return *static_cast<const RefWeight*>(weight);
}

// Rotates one head; cos_sin holds the cosines, then the sines of rope_dim / 2 pairs.
void rotate(float* head, const float* cos_sin, int32_t rope_dim, ops::RopePairs pairs) {
  const int32_t half = rope_dim / 2;
  for (int32_t i = 0; i < half; ++i) {
    const bool halves = pairs == ops::RopePairs::kHalves;
    float& a = head[halves ? i : 2 * i];
    float& b = head[halves ? i + half : 2 * i + 1];
    const double x = a;
    const double y = b;
    a = static_cast<float>(x * cos_sin[i] - y * cos_sin[half + i]);
    b = static_cast<float>(y * cos_sin[i] + x * cos_sin[half + i]);
  }
}

// One query head of one row over the tokens first … last of its sequence.
void attend(const ops::Attention& args, const ops::AttentionSeq& seq, const float* q, int32_t head,
            int32_t first, int32_t last, float* out) {
  const KvView& kv = *args.kv;
  const int32_t kv_head = head / (args.n_heads / kv.n_kv_heads);
  const auto page = [&](KvPart part, int32_t token) {
    return kv.page(seq.blocks[token / kv.block_size], args.layer, part, kv_head,
                   token % kv.block_size);
  };
  std::vector<double> scores;
  for (int32_t t = first; t <= last; ++t) {
    double dot = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      const uint8_t* keys = page(KvPart::kKey, t);
      dot += double{q[d]} * read_page(kv, keys, KvPart::kKey, t % kPageTokens, d);
    }
    scores.push_back(dot * args.scale);
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> acc(static_cast<size_t>(kv.head_dim), 0.0);
  for (int32_t t = first; t <= last; ++t) {
    const double p = std::exp(scores[static_cast<size_t>(t - first)] - max);
    sum += p;
    const uint8_t* values = page(KvPart::kValue, t);
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      acc[static_cast<size_t>(d)] += p * read_page(kv, values, KvPart::kValue, t % kPageTokens, d);
    }
  }
  for (int32_t d = 0; d < kv.head_dim; ++d) {
    out[d] = static_cast<float>(acc[static_cast<size_t>(d)] / sum);
  }
}

}  // namespace

float read_page(const KvView& kv, const uint8_t* page, KvPart part, int32_t token, int32_t d) {
  const int64_t i = page_index(kv, part, token, d);
  if (kv.dtype == DType::kF32) return reinterpret_cast<const float*>(page)[i];
  return f16_to_f32(reinterpret_cast<const uint16_t*>(page)[i]);
}

void write_page(const KvView& kv, uint8_t* page, KvPart part, int32_t token, int32_t d, float x) {
  const int64_t i = page_index(kv, part, token, d);
  if (kv.dtype == DType::kF32) {
    reinterpret_cast<float*>(page)[i] = x;
  } else {
    reinterpret_cast<uint16_t*>(page)[i] = f32_to_f16(x);
  }
}

void embed(Backend&, const ops::Embed& args) {
  const RefWeight& weight = weight_of(args.weight);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* row = weight.row(args.ids[r]);
    std::copy(row, row + weight.k(), args.out + r * weight.k());
  }
}

void rms_norm(Backend&, const ops::RmsNorm& args) {
  auto* const out = static_cast<float*>(args.out);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = args.x + r * args.dim;
    double sum = 0;
    for (int32_t i = 0; i < args.dim; ++i) sum += double{x[i]} * x[i];
    const double factor = 1 / std::sqrt(sum / args.dim + args.eps);
    for (int32_t i = 0; i < args.dim; ++i) {
      out[r * args.dim + i] = static_cast<float>(x[i] * factor * args.weight[i]);
    }
  }
}

void matmul(Backend&, const ops::Matmul& args) {
  const RefWeight& weight = weight_of(args.weight);
  CHECK(args.y_type == DType::kF32);
  const auto* const rows = static_cast<const float*>(args.x);
  auto* const out = static_cast<float*>(args.y);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = rows + r * weight.k();
    for (int64_t i = 0; i < weight.n(); ++i) {
      float& y = out[r * weight.n() + i];
      double sum = args.bias != nullptr ? args.bias[i] : 0.0;
      if (args.accumulate) sum += y;
      const float* w = weight.row(i);
      for (int64_t j = 0; j < weight.k(); ++j) sum += double{x[j]} * w[j];
      y = static_cast<float>(sum);
    }
  }
}

void silu_mul(Backend&, const ops::SiluMul& args) {
  const auto* const gate_up = static_cast<const float*>(args.gate_up);
  auto* const out = static_cast<float*>(args.out);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* gate = gate_up + r * 2 * args.dim;
    const float* up = gate + args.dim;
    for (int32_t i = 0; i < args.dim; ++i) {
      const double g = gate[i];
      out[r * args.dim + i] = static_cast<float>(g / (1 + std::exp(-g)) * up[i]);
    }
  }
}

void rope_angles(Backend&, const ops::RopeAngles& args) {
  const int32_t half = args.rope_dim / 2;
  for (int64_t r = 0; r < args.n_rows; ++r) {
    float* out = args.cos_sin + r * args.rope_dim;
    for (int32_t i = 0; i < half; ++i) {
      const double angle = double{args.inv_freq[i]} * args.positions[r];
      out[i] = static_cast<float>(std::cos(angle) * args.scale);
      out[half + i] = static_cast<float>(std::sin(angle) * args.scale);
    }
  }
}

void rope_kv_write(Backend&, const ops::RopeKvWrite& args) {
  const KvView& kv = *args.kv;
  auto* const qkv = static_cast<float*>(args.qkv);
  const int64_t row_len = int64_t{args.n_heads + 2 * kv.n_kv_heads} * kv.head_dim;
  for (int64_t r = 0; r < args.n_rows; ++r) {
    float* q = qkv + r * row_len;
    const float* cos_sin = args.cos_sin + r * args.rope_dim;
    for (int32_t h = 0; h < args.n_heads + kv.n_kv_heads; ++h) {
      rotate(q + int64_t{h} * kv.head_dim, cos_sin, args.rope_dim, args.pairs);
    }
    const float* k = q + int64_t{args.n_heads} * kv.head_dim;
    const float* v = k + int64_t{kv.n_kv_heads} * kv.head_dim;
    const ops::KvSlot& slot = args.slots[r];
    const int32_t token = slot.offset % kPageTokens;
    for (int32_t h = 0; h < kv.n_kv_heads; ++h) {
      uint8_t* keys = kv.page(slot.block, args.layer, KvPart::kKey, h, slot.offset);
      uint8_t* values = kv.page(slot.block, args.layer, KvPart::kValue, h, slot.offset);
      for (int32_t d = 0; d < kv.head_dim; ++d) {
        write_page(kv, keys, KvPart::kKey, token, d, k[h * kv.head_dim + d]);
        write_page(kv, values, KvPart::kValue, token, d, v[h * kv.head_dim + d]);
      }
    }
  }
}

void attention(Backend&, const ops::Attention& args) {
  const KvView& kv = *args.kv;
  const auto* const q = static_cast<const float*>(args.q);
  auto* const out = static_cast<float*>(args.out);
  CHECK_EQ(args.n_heads % kv.n_kv_heads, 0);
  for (const ops::AttentionSeq& seq : args.seqs) {
    for (int32_t i = 0; i < seq.n_rows; ++i) {
      const int64_t row = seq.row_begin + i;
      const int32_t last = seq.position + i;
      const int32_t first = args.window > 0 ? std::max(0, last - args.window + 1) : 0;
      for (int32_t h = 0; h < args.n_heads; ++h) {
        attend(args, seq, q + row * args.q_stride + int64_t{h} * kv.head_dim, h, first, last,
               out + (row * args.n_heads + h) * kv.head_dim);
      }
    }
  }
}

void gather_rows(Backend&, const ops::GatherRows& args) {
  const auto* const x = static_cast<const uint8_t*>(args.x);
  auto* const out = static_cast<uint8_t*>(args.out);
  for (int64_t i = 0; i < args.n_rows; ++i) {
    const uint8_t* row = x + args.rows[i] * args.row_bytes;
    std::copy(row, row + args.row_bytes, out + i * args.row_bytes);
  }
}

}  // namespace pagoda::ref
