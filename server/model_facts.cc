#include "server/model_facts.h"

#include <algorithm>

namespace pagoda {
namespace {

// By the names that GGUF gives tensors: blk.N.PART.weight, and a few outside the layers.
ModelPart part_of(std::string_view name) {
  if (name.starts_with("token_embd.")) return ModelPart::kEmbedding;
  if (name.starts_with("output.")) return ModelPart::kOutput;
  if (name.find("norm") != name.npos) return ModelPart::kNorm;
  if (!name.starts_with("blk.")) return ModelPart::kOther;
  if (name.find(".attn_") != name.npos) return ModelPart::kAttention;
  if (name.find(".ffn_") != name.npos) return ModelPart::kFeedForward;
  return ModelPart::kOther;
}

}  // namespace

std::string_view model_part_name(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kAttention:
      return "attention";
    case ModelPart::kFeedForward:
      return "feed-forward";
    case ModelPart::kNorm:
      return "norms";
    case ModelPart::kOutput:
      return "output";
    case ModelPart::kOther:
      return "other";
  }
  return "";
}

ModelFacts facts_of(const model::GgufFile& file) {
  ModelFacts facts;
  for (const model::GgufTensor& tensor : file.tensors()) {
    // Bounded by the parser: the elements of all tensors fit in int64.
    int64_t n = 1;
    for (const int64_t dim : tensor.dims) n *= dim;
    const auto bytes = static_cast<int64_t>(tensor.data.size());
    ++facts.n_tensors;
    facts.n_parameters += n;
    facts.tensor_bytes += bytes;
    facts.part_parameters[static_cast<size_t>(part_of(tensor.name))] += n;
    auto use = std::ranges::find(facts.types, tensor.type, &TypeUse::type);
    if (use == facts.types.end()) use = facts.types.insert(use, TypeUse{.type = tensor.type});
    ++use->n_tensors;
    use->n_parameters += n;
    use->n_bytes += bytes;
  }
  std::ranges::stable_sort(facts.types, std::greater<>(), &TypeUse::n_bytes);
  return facts;
}

}  // namespace pagoda
