#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/head_dims.h"

namespace pagoda::cuda {

template <>
void launch_mma_of<Half>(const AttentionArgs& args, StreamHandle stream) {
  with_head_dim(args.kv.head_dim, [&]<int kDim>() { launch_mma<Half, kDim>(args, stream); });
}
template <>
void launch_simt_of<Half>(const AttentionArgs& args, StreamHandle stream) {
  with_head_dim(args.kv.head_dim, [&]<int kDim>() { launch_simt<Half, kDim>(args, stream); });
}

}  // namespace pagoda::cuda
