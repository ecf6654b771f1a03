#include "kernels/cuda/decode.cuh"

namespace pagoda::cuda {

template <>
void launch_mma_of<Half>(const AttentionArgs& args, StreamHandle stream);
template <>
void launch_mma_of<BFloat16>(const AttentionArgs& args, StreamHandle stream);
template <>
void launch_simt_of<Half>(const AttentionArgs& args, StreamHandle stream);
template <>
void launch_simt_of<BFloat16>(const AttentionArgs& args, StreamHandle stream);

void launch_decode_mma(const AttentionArgs& args, StreamHandle stream) {
  if (args.n_items == 0) return;
  if (args.type == HalfType::kF16) {
    launch_mma_of<Half>(args, stream);
  } else {
    launch_mma_of<BFloat16>(args, stream);
  }
}

void launch_decode_simt(const AttentionArgs& args, StreamHandle stream) {
  if (args.n_items == 0) return;
  if (args.type == HalfType::kF16) {
    launch_simt_of<Half>(args, stream);
  } else {
    launch_simt_of<BFloat16>(args, stream);
  }
}

}  // namespace pagoda::cuda
