// The head sizes that attention is compiled for.
#pragma once

#include <cstdint>

// Calls f.template operator()<head_dim>().
namespace pagoda::cuda {

constexpr bool is_head_dim(int32_t head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

template <typename F>
void with_head_dim(int32_t head_dim, F&& f) {
  switch (head_dim) {
    case 64:
      return f.template operator()<64>();
    case 80:
      return f.template operator()<80>();
    case 96:
      return f.template operator()<96>();
    case 128:
      return f.template operator()<128>();
    case 256:
      return f.template operator()<256>();
    default:
      return;  // the backend refuses such a model
  }
}

}  // namespace pagoda::cuda
