// Merges the parts of rows whose KV was split. Bound: memory, 4 * head_dim + 8 bytes a part and
// head in, 2 * head_dim out: some percent of what the decode kernel reads.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/portable.h"

namespace pagoda::cuda {
namespace {

template <typename T>
__global__ void combine(CombineArgs args) {
  const CombineItem item = args.items[blockIdx.y];
  const int head = static_cast<int>(blockIdx.x);
  const int dim = static_cast<int>(threadIdx.x);
  const auto part_of = [&](int i) {
    return (item.part + static_cast<int64_t>(i) * item.stride) * args.n_heads + head;
  };
  float max = -INFINITY;
  for (int i = 0; i < item.n_parts; ++i) max = fmaxf(max, args.part_state[part_of(i) * 2]);
  float sum = 0;
  float out = 0;
  for (int i = 0; i < item.n_parts; ++i) {
    const float mine = args.part_state[part_of(i) * 2];
    if (mine == -INFINITY) continue;
    const float weight = exp2f(mine - max);
    sum += weight * args.part_state[part_of(i) * 2 + 1];
    out += weight * args.part_out[part_of(i) * args.head_dim + dim];
  }
  static_cast<T*>(
      args.out)[(static_cast<int64_t>(item.row) * args.n_heads + head) * args.head_dim + dim] =
      from_float<T>(sum > 0 ? out / sum : 0.0F);
}

}  // namespace

void launch_combine(const CombineArgs& args, StreamHandle stream) {
  if (args.n_items == 0) return;
  const dim3 grid(static_cast<unsigned>(args.n_heads), static_cast<unsigned>(args.n_items));
  const dim3 block(static_cast<unsigned>(args.head_dim));
  if (args.type == HalfType::kF16) {
    PAGODA_LAUNCH((combine<Half>), grid, block, 0, stream, args);
  } else {
    PAGODA_LAUNCH((combine<BFloat16>), grid, block, 0, stream, args);
  }
}

}  // namespace pagoda::cuda
