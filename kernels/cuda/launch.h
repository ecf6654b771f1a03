// What the host sees of all kernels: a launcher each, over plain structs of device pointers. A
// launcher only puts work on the stream; the caller asks the device for errors. No CUDA header is
// needed here, so that the same callers stand above the emulator.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace pagoda::cuda {

using StreamHandle = CUstream_st*;  // cudaStream_t

// Of KV, weights and branch activations: all of a model's are the same.
enum class HalfType : uint8_t { kF16, kBF16 };

// Calls f with a value of the element type.
#define PAGODA_WITH_HALF(type, f)    \
  do {                               \
    if ((type) == HalfType::kF16) {  \
      f(::pagoda::cuda::Half{});     \
    } else {                         \
      f(::pagoda::cuda::BFloat16{}); \
    }                                \
  } while (false)

}  // namespace pagoda::cuda
