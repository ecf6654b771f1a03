// What the header of a model file says of its size: parameters by part and by type.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "model/gguf.h"

namespace pagoda {

enum class ModelPart : uint8_t { kEmbedding, kAttention, kFeedForward, kNorm, kOutput, kOther };
inline constexpr size_t kNumModelParts = 6;
std::string_view model_part_name(ModelPart part);

struct TypeUse {
  DType type = DType::kF32;
  int64_t n_tensors = 0;
  int64_t n_parameters = 0;
  int64_t n_bytes = 0;
};

struct ModelFacts {
  int64_t n_tensors = 0;
  int64_t n_parameters = 0;
  int64_t tensor_bytes = 0;  // in the file
  std::array<int64_t, kNumModelParts> part_parameters{};
  std::vector<TypeUse> types;  // the one with the most bytes first
};

ModelFacts facts_of(const model::GgufFile& file);

}  // namespace pagoda
