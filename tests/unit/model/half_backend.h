// The reference with activations in f16, for tests of what must not take a backend's activation
// type for f32. What an op leaves unspecified becomes NaN.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/ref/ref_backend.h"

namespace pagoda::model {

class HalfBackend final : public Backend {
 public:
  HalfBackend() : capabilities_(reference_.capabilities()), ops_(reference_.ops()) {
    capabilities_.activation = DType::kF16;
    ops_.rms_norm = rms_norm;
    ops_.matmul = matmul;
    ops_.silu_mul = silu_mul;
    ops_.rope_kv_write = rope_kv_write;
    ops_.plan_attention = plan_attention;
    ops_.attention = attention;
  }

  const Capabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<Buffer> allocate(size_t bytes) override { return reference_.allocate(bytes); }
  absl::StatusOr<std::unique_ptr<PackedWeight>> pack(std::span<const WeightSource> sources,
                                                     int32_t rank, int32_t world) override {
    return reference_.pack(sources, rank, world);
  }
  Stream stream() override { return reference_.stream(); }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    reference_.copy(to, from, bytes, stream);
  }
  Event record(Stream stream) override { return reference_.record(stream); }
  void wait(Event event) override { reference_.wait(event); }
  const OpTable& ops() const override { return ops_; }

 private:
  static std::vector<float> widen(const void* halves, int64_t n) {
    std::vector<float> values(static_cast<size_t>(n));
    const auto* from = static_cast<const uint16_t*>(halves);
    for (float& value : values) value = f16_to_f32(*from++);
    return values;
  }
  static void narrow(const std::vector<float>& values, void* halves) {
    auto* to = static_cast<uint16_t*>(halves);
    for (const float value : values) *to++ = f32_to_f16(value);
  }
  static std::vector<float> floats(int64_t n) { return std::vector<float>(static_cast<size_t>(n)); }
  static ref::RefBackend& reference(Backend& backend) {
    return static_cast<HalfBackend&>(backend).reference_;
  }

  static void rms_norm(Backend& backend, const ops::RmsNorm& args) {
    std::vector<float> out = floats(int64_t{args.n_rows} * args.dim);
    ops::RmsNorm wide = args;
    wide.out = out.data();
    ops::rms_norm(reference(backend), wide);
    narrow(out, args.out);
  }

  static void matmul(Backend& backend, const ops::Matmul& args) {
    const std::vector<float> x = widen(args.x, args.n_rows * args.weight->k());
    ops::Matmul wide = args;
    wide.x = x.data();
    if (args.y_type == DType::kF32) return ops::matmul(reference(backend), wide);
    CHECK(args.y_type == DType::kF16);
    CHECK(!args.accumulate);
    std::vector<float> y = floats(args.n_rows * args.weight->n());
    wide.y = y.data();
    wide.y_type = DType::kF32;
    ops::matmul(reference(backend), wide);
    narrow(y, args.y);
  }

  static void silu_mul(Backend& backend, const ops::SiluMul& args) {
    const int64_t n = int64_t{args.n_rows} * args.dim;
    const std::vector<float> gate_up = widen(args.gate_up, 2 * n);
    std::vector<float> out = floats(n);
    ops::SiluMul wide = args;
    wide.gate_up = gate_up.data();
    wide.out = out.data();
    ops::silu_mul(reference(backend), wide);
    narrow(out, args.out);
  }

  static void rope_kv_write(Backend& backend, const ops::RopeKvWrite& args) {
    const int64_t q_dim = int64_t{args.n_heads} * args.kv->head_dim;
    const int64_t kv_dim = int64_t{args.kv->n_kv_heads} * args.kv->head_dim;
    std::vector<float> qkv = widen(args.qkv, args.n_rows * (q_dim + 2 * kv_dim));
    ops::RopeKvWrite wide = args;
    wide.qkv = qkv.data();
    ops::rope_kv_write(reference(backend), wide);
    for (auto row = qkv.begin(); row != qkv.end(); row += q_dim + 2 * kv_dim) {
      std::fill_n(row + q_dim, kv_dim, std::numeric_limits<float>::quiet_NaN());
    }
    narrow(qkv, args.qkv);
  }

  static void plan_attention(Backend& backend, const ops::PlanAttention& args) {
    auto& plans = static_cast<HalfBackend&>(backend).plans_;
    plans.resize(std::max(plans.size(), static_cast<size_t>(args.group) + 1));
    plans[static_cast<size_t>(args.group)] = args;
  }

  static void attention(Backend& backend, const ops::Attention& args) {
    const ops::PlanAttention& plan =
        static_cast<HalfBackend&>(backend).plans_.at(static_cast<size_t>(args.group));
    CHECK(plan.kv == args.kv && plan.seqs.data() == args.seqs.data());
    CHECK(plan.seqs.size() == args.seqs.size());
    CHECK(plan.n_heads == args.n_heads && plan.window == args.window);
    int64_t n_rows = 0;
    for (const ops::AttentionSeq& seq : args.seqs) n_rows += seq.n_rows;
    const std::vector<float> q = widen(args.q, n_rows * args.q_stride);
    std::vector<float> out = floats(n_rows * args.n_heads * args.kv->head_dim);
    ops::Attention wide = args;
    wide.q = q.data();
    wide.out = out.data();
    ops::attention(reference(backend), wide);
    narrow(out, args.out);
  }

  ref::RefBackend reference_;
  Capabilities capabilities_;
  OpTable ops_;
  std::vector<ops::PlanAttention> plans_;  // by group
};

}  // namespace pagoda::model
