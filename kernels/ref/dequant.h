// What a block of each GGUF type means: the value of every element, by the specification.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace pagoda::ref {

// Element `i` of a row whose blocks start at `row`; exact.
double dequantize(DType type, const uint8_t* row, int64_t i);

// The same for a whole row of n elements, rounded to float once.
void dequantize_row(DType type, const uint8_t* row, float* out, int64_t n);

}  // namespace pagoda::ref
