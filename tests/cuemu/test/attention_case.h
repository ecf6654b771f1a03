// A paged KV pool of random values, query rows, and what attention over them means in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/portable.h"

namespace pagoda::cuda {

struct AttentionCase {
  int32_t n_heads = 4;
  int32_t n_kv_heads = 2;
  int32_t head_dim = 64;
  int32_t block_size = 16;
  int32_t window = 0;
  int32_t n_slots = 1000;  // of the device: many means many parts
  struct Seq {
    int32_t position;  // of the first query row
    int32_t n_rows;
  };
  std::vector<Seq> seqs;
};

template <typename T>
constexpr HalfType half_type() {
  return std::is_same_v<T, Half> ? HalfType::kF16 : HalfType::kBF16;
}
// Of outputs over values of about 1.
template <typename T>
constexpr double tolerance() {
  return std::is_same_v<T, Half> ? 2e-3 : 1.6e-2;
}

// An array on 16 bytes that ends where its last element does, as the address sanitizer sees it.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n)
      : n_(n), data_(static_cast<T*>(operator new[](n * sizeof(T), std::align_val_t(128)))) {
    std::memset(static_cast<void*>(data_), 0xFF, n * sizeof(T));  // NaN
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { operator delete[](data_, std::align_val_t(128)); }
  T* data() { return data_; }
  size_t size() const { return n_; }
  T& operator[](size_t i) { return data_[i]; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  size_t n_;
  T* data_;
};

// [block][2 layers][K, V][kv_head][block_size][head_dim] in a random order of blocks; the second
// layer is in use. What no row sees is NaN.
template <typename T>
class AttentionRun {
 public:
  AttentionRun(const AttentionCase& c, uint64_t seed) : case_(c), random_(seed) {
    for (const AttentionCase::Seq& seq : c.seqs) {
      n_rows_ += seq.n_rows;
      n_blocks_ += blocks_of(seq);
    }
    kv_.block_size = c.block_size;
    kv_.n_kv_heads = c.n_kv_heads;
    kv_.head_dim = c.head_dim;
    kv_.head_stride = int64_t{c.block_size} * c.head_dim;
    kv_.v_offset = kv_.head_stride * c.n_kv_heads;
    kv_.block_stride = 4 * kv_.v_offset;
    pool_ = std::make_unique<DeviceArray<T>>(static_cast<size_t>(n_blocks_ * kv_.block_stride));
    kv_.base = pool_->data() + 2 * kv_.v_offset;
    q_stride_ = int64_t{c.n_heads + 2 * c.n_kv_heads} * c.head_dim;
    q_ = std::make_unique<DeviceArray<T>>(
        static_cast<size_t>((n_rows_ - 1) * q_stride_ + int64_t{c.n_heads} * c.head_dim));
    out_ = std::make_unique<DeviceArray<T>>(
        static_cast<size_t>(int64_t{n_rows_} * c.n_heads * c.head_dim));
    fill();
  }

  using Launch = void (*)(const AttentionArgs&, StreamHandle);
  // Plans and runs all items; the worst error.
  double run(Launch decode, Launch prefill) {
    AttentionPlan plan;
    plan_attention(shape(), seqs_, plan);
    DeviceArray<int32_t> tables(plan.tables);
    DeviceArray<AttentionItem> decode_items(plan.decode);
    DeviceArray<AttentionItem> prefill_items(plan.prefill);
    DeviceArray<CombineItem> combine_items(plan.combine);
    const auto n_parts = static_cast<size_t>(plan.n_parts) * static_cast<size_t>(case_.n_heads);
    DeviceArray<float> part_out(n_parts * static_cast<size_t>(case_.head_dim));
    DeviceArray<float> part_state(n_parts * 2);
    AttentionArgs args;
    args.type = half_type<T>();
    args.q = q_->data();
    args.q_stride = q_stride_;
    args.out = out_->data();
    args.kv = kv_;
    args.tables = tables.data();
    args.part_out = part_out.data();
    args.part_state = part_state.data();
    args.n_heads = case_.n_heads;
    args.scale = scale();
    args.window = case_.window;
    args.items = decode_items.data();
    args.n_items = static_cast<int32_t>(plan.decode.size());
    if (args.n_items > 0) decode(args, nullptr);
    args.items = prefill_items.data();
    args.n_items = static_cast<int32_t>(plan.prefill.size());
    if (args.n_items > 0) prefill(args, nullptr);
    launch_combine(
        {half_type<T>(), out_->data(), part_out.data(), part_state.data(), combine_items.data(),
         static_cast<int32_t>(plan.combine.size()), case_.n_heads, case_.head_dim},
        nullptr);
    n_parts_ = plan.n_parts;
    return worst_error();
  }
  int32_t n_parts() const { return n_parts_; }

 private:
  int32_t blocks_of(const AttentionCase::Seq& seq) const {
    return (seq.position + seq.n_rows + case_.block_size - 1) / case_.block_size;
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(case_.head_dim)); }
  AttentionShape shape() const {
    return {case_.n_heads, case_.n_kv_heads, case_.block_size, case_.window, case_.n_slots};
  }
  T* kv_row(int32_t block, bool is_value, int32_t head, int32_t token) {
    return pool_->data() + 2 * kv_.v_offset + block * kv_.block_stride +
           (is_value ? kv_.v_offset : 0) + head * kv_.head_stride + int64_t{token} * case_.head_dim;
  }
  int32_t first_seen(int32_t position) const {
    return case_.window > 0 ? std::max(0, position + 1 - case_.window) : 0;
  }

  void fill() {
    std::vector<int32_t> order(static_cast<size_t>(n_blocks_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    size_t next = 0;
    tables_.reserve(case_.seqs.size());
    int32_t row = 0;
    for (const AttentionCase::Seq& seq : case_.seqs) {
      std::vector<BlockId>& table = tables_.emplace_back();
      for (int32_t i = 0; i < blocks_of(seq); ++i) table.emplace_back(order[next++]);
      seqs_.push_back({row, seq.n_rows, seq.position, table.data()});
      row += seq.n_rows;
      // Whole pages are read from the first that is seen; what lies in them is finite.
      const int32_t first = first_seen(seq.position) / kPageTokens * kPageTokens;
      for (int32_t t = first; t < seq.position + seq.n_rows; ++t) {
        const int32_t block = table[static_cast<size_t>(t / case_.block_size)].value();
        for (int32_t h = 0; h < case_.n_kv_heads; ++h) {
          for (const bool is_value : {false, true}) {
            T* const to = kv_row(block, is_value, h, t % case_.block_size);
            for (int32_t d = 0; d < case_.head_dim; ++d) to[d] = from_float<T>(normal_(random_));
          }
        }
      }
    }
    for (int64_t r = 0; r < n_rows_; ++r) {
      for (int64_t i = 0; i < int64_t{case_.n_heads} * case_.head_dim; ++i) {
        (*q_)[r * q_stride_ + i] = from_float<T>(normal_(random_));
      }
    }
  }

  double worst_error() {
    double worst = 0;
    const auto dim = static_cast<size_t>(case_.head_dim);
    for (const ops::AttentionSeq& seq : seqs_) {
      for (int32_t i = 0; i < seq.n_rows; ++i) {
        for (int32_t h = 0; h < case_.n_heads; ++h) {
          const std::vector<double> want = meaning(seq, i, h);
          const T* const got =
              out_->data() + (int64_t{seq.row_begin + i} * case_.n_heads + h) * case_.head_dim;
          for (size_t d = 0; d < dim; ++d) {
            const double error = std::abs(want[d] - to_float(got[d]));
            if (!(error <= worst)) {
              worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
            }
          }
        }
      }
    }
    return worst;
  }

  std::vector<double> meaning(const ops::AttentionSeq& seq, int32_t i, int32_t head) {
    const int32_t position = seq.position + i;
    const int32_t kv_head = head / (case_.n_heads / case_.n_kv_heads);
    const T* const q = q_->data() + (seq.row_begin + i) * q_stride_ + head * case_.head_dim;
    const auto row = [&](int32_t t, bool is_value) {
      return kv_row(seq.blocks[t / case_.block_size].value(), is_value, kv_head,
                    t % case_.block_size);
    };
    std::vector<double> weights;
    for (int32_t t = first_seen(position); t <= position; ++t) {
      double dot = 0;
      for (int32_t d = 0; d < case_.head_dim; ++d) {
        dot += double{to_float(q[d])} * to_float(row(t, false)[d]);
      }
      weights.push_back(dot * scale());
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    std::vector<double> out(static_cast<size_t>(case_.head_dim));
    for (size_t n = 0; n < weights.size(); ++n) {
      const T* const values = row(first_seen(position) + static_cast<int32_t>(n), true);
      for (size_t d = 0; d < out.size(); ++d) out[d] += weights[n] / sum * to_float(values[d]);
    }
    return out;
  }

  const AttentionCase case_;
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
  int32_t n_rows_ = 0;
  int32_t n_blocks_ = 0;
  int32_t n_parts_ = 0;
  int64_t q_stride_ = 0;
  PagedKv kv_;
  std::unique_ptr<DeviceArray<T>> pool_;
  std::unique_ptr<DeviceArray<T>> q_;
  std::unique_ptr<DeviceArray<T>> out_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<ops::AttentionSeq> seqs_;
};

}  // namespace pagoda::cuda
