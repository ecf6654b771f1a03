#include "kernels/ref/ref_backend.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "kernels/ref/dequant.h"

namespace pagoda::ref {

RefBackend::RefBackend(PageLayout page_layout, DType kv_dtype) {
  CHECK(kv_dtype == DType::kF16 || kv_dtype == DType::kF32);
  capabilities_.device = "ref";
  capabilities_.kernel_set = "fp64";
  capabilities_.page_layout = page_layout;
  capabilities_.kv_dtype = kv_dtype;
  ops_.embed = embed;
  ops_.rms_norm = rms_norm;
  ops_.matmul = matmul;
  ops_.silu_mul = silu_mul;
  ops_.rope_angles = rope_angles;
  ops_.rope_kv_write = rope_kv_write;
  ops_.attention = attention;
  ops_.gather_rows = gather_rows;
  ops_.sample = sample;
}

absl::StatusOr<Buffer> RefBackend::allocate(size_t bytes) {
  constexpr size_t kAlign = 64;
  const size_t rounded = (bytes / kAlign + 1) * kAlign;
  void* data = rounded > bytes ? std::aligned_alloc(kAlign, rounded) : nullptr;
  if (data == nullptr) {
    return base::status_error(absl::StatusCode::kResourceExhausted, "no memory for {} bytes",
                              bytes);
  }
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, [](void* p, size_t) { std::free(p); });
}

absl::StatusOr<std::unique_ptr<PackedWeight>> RefBackend::pack(
    std::span<const WeightSource> sources, int32_t rank, int32_t world) {
  if (sources.empty()) return base::invalid_argument("a packed weight needs a source");
  if (world < 1 || rank < 0 || rank >= world) {
    return base::invalid_argument("rank {} of {} is none", rank, world);
  }
  const int64_t k = sources[0].k;
  int64_t n = 0;
  for (const WeightSource& source : sources) {
    if (source.k != k) return base::invalid_argument("stacked weights of {} and {}", k, source.k);
    if (source.n % world != 0) {
      return base::invalid_argument("{} rows do not divide over {} ranks", source.n, world);
    }
    n += source.n / world;
  }
  std::vector<float> values(static_cast<size_t>(n * k));
  float* to = values.data();
  for (const WeightSource& source : sources) {
    const int64_t rows = source.n / world;
    const int64_t row_bytes = dtype_row_bytes(source.type, k);
    for (int64_t i = rank * rows; i < (rank + 1) * rows; ++i, to += k) {
      dequantize_row(source.type, source.data + i * row_bytes, to, k);
    }
  }
  return std::unique_ptr<PackedWeight>(std::make_unique<RefWeight>(std::move(values), n, k));
}

void RefBackend::copy(void* to, const void* from, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace pagoda::ref
