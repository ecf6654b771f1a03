#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/head_dims.h"

namespace pagoda::cuda {

template <>
void launch_mma_of<BFloat16>(const AttentionArgs& args, StreamHandle stream) {
  with_head_dim(args.kv.head_dim, [&]<int kDim>() { launch_mma<BFloat16, kDim>(args, stream); });
}
template <>
void launch_simt_of<BFloat16>(const AttentionArgs& args, StreamHandle stream) {
  with_head_dim(args.kv.head_dim, [&]<int kDim>() { launch_simt<BFloat16, kDim>(args, stream); });
}

}  // namespace pagoda::cuda
