#include "kernels/ops.h"

#include "base/check.h"

namespace pagoda::ops {

void embed(Backend& backend, const Embed& args) { backend.ops().embed(backend, args); }
void rms_norm(Backend& backend, const RmsNorm& args) { backend.ops().rms_norm(backend, args); }
void matmul(Backend& backend, const Matmul& args) { backend.ops().matmul(backend, args); }
void silu_mul(Backend& backend, const SiluMul& args) { backend.ops().silu_mul(backend, args); }
void rope_angles(Backend& backend, const RopeAngles& args) {
  backend.ops().rope_angles(backend, args);
}
void rope_kv_write(Backend& backend, const RopeKvWrite& args) {
  backend.ops().rope_kv_write(backend, args);
}
void plan_attention(Backend& backend, const PlanAttention& args) {
  if (backend.ops().plan_attention != nullptr) backend.ops().plan_attention(backend, args);
}
void attention(Backend& backend, const Attention& args) { backend.ops().attention(backend, args); }
void gather_rows(Backend& backend, const GatherRows& args) {
  backend.ops().gather_rows(backend, args);
}
void sample(Backend& backend, const Sample& args) { backend.ops().sample(backend, args); }

void all_reduce(Backend&, float*, int64_t, int32_t world) { CHECK_EQ(world, 1); }

void all_gather(Backend& backend, const float* x, float* out, int64_t n, int32_t world) {
  CHECK_EQ(world, 1);
  if (out != x) {
    backend.copy(out, x, static_cast<size_t>(n) * sizeof(float), backend.stream());
  }
}

}  // namespace pagoda::ops
