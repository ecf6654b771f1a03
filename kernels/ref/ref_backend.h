// The reference backend: what every op means, in double precision and obvious loops. It serves
// tests only, as the oracle of other backends, and is as slow as it looks.
//
// Memory is plain host memory, weights are dequantised floats. It reads and writes both page
// layouts, whichever a KvView names, and announces the one it was made with, so that code above
// the kernels meets layouts and KV types other than the CPU backend's. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/ops.h"

namespace pagoda::ref {

// A weight as the reference keeps it: row-major floats.
class RefWeight final : public PackedWeight {
 public:
  RefWeight(std::vector<float> values, int64_t n, int64_t k)
      : values_(std::move(values)), n_(n), k_(k) {}
  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  int64_t bytes() const override { return static_cast<int64_t>(values_.size() * sizeof(float)); }
  const float* row(int64_t i) const { return values_.data() + i * k_; }

 private:
  std::vector<float> values_;  // [n, k]
  int64_t n_;
  int64_t k_;
};

class RefBackend final : public Backend {
 public:
  explicit RefBackend(PageLayout page_layout = PageLayout::kTokenMajor,
                      DType kv_dtype = DType::kF32);

  const Capabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<Buffer> allocate(size_t bytes) override;
  // Of each source, rank r keeps rows [n * r / world, n * (r + 1) / world). kInvalidArgument when
  // the k differ, n is not a multiple of world, or there is no source.
  absl::StatusOr<std::unique_ptr<PackedWeight>> pack(std::span<const WeightSource> sources,
                                                     int32_t rank, int32_t world) override;
  Stream stream() override { return {}; }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  Event record(Stream) override { return {}; }
  void wait(Event) override {}
  const OpTable& ops() const override { return ops_; }

 private:
  Capabilities capabilities_;
  OpTable ops_;
};

// The element (token, d) of a page, in either layout and either KV type.
float read_page(const KvView& kv, const uint8_t* page, KvPart part, int32_t token, int32_t d);
// Rounds to the KV type, to nearest even.
void write_page(const KvView& kv, uint8_t* page, KvPart part, int32_t token, int32_t d, float x);

// The ops; see ops.h.
void embed(Backend& backend, const ops::Embed& args);
void rms_norm(Backend& backend, const ops::RmsNorm& args);
void matmul(Backend& backend, const ops::Matmul& args);
void silu_mul(Backend& backend, const ops::SiluMul& args);
void rope_angles(Backend& backend, const ops::RopeAngles& args);
void rope_kv_write(Backend& backend, const ops::RopeKvWrite& args);
void attention(Backend& backend, const ops::Attention& args);
void gather_rows(Backend& backend, const ops::GatherRows& args);
void sample(Backend& backend, const ops::Sample& args);

}  // namespace pagoda::ref
