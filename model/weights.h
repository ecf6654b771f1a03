// A model's tensors in the form its backend multiplies, and the digest that names their content.
// Made once at start, by one thread; immutable afterwards, so any thread may read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/hash.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/gguf.h"

namespace pagoda::model {

// y = x W^T + bias
struct Linear {
  std::unique_ptr<PackedWeight> weight;  // [n, k]
  Buffer bias;                           // f32 [n], or empty

  const float* bias_or_null() const { return bias.as<float>(); }
};

struct LayerWeights {
  Buffer attn_norm;  // f32 [hidden_dim]
  Linear qkv;        // [(n_heads + 2 * n_kv_heads) * head_dim, hidden_dim]: q, k, v
  Linear attn_out;   // [hidden_dim, n_heads * head_dim]
  Buffer ffn_norm;   // f32 [hidden_dim]
  Linear gate_up;    // [2 * ffn_dim, hidden_dim]: gate, up
  Linear down;       // [hidden_dim, ffn_dim]
};

struct Weights {
  std::unique_ptr<PackedWeight> embed;          // [n_vocab, hidden_dim]
  std::vector<LayerWeights> layers;             // [n_layers]
  Buffer output_norm;                           // f32 [hidden_dim]
  std::unique_ptr<PackedWeight> untied_output;  // [n_vocab, hidden_dim], null when tied

  // What the model is, whatever the file's name and the order of its tensors: SHA-256 over the
  // configuration and each tensor's name, type, shape and XXH3-128.
  base::Digest256 digest{};

  const PackedWeight* output() const { return untied_output ? untied_output.get() : embed.get(); }
};

// Bytes of the file's tensors that are done, of all.
using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Packs tensor by tensor and gives each one's file pages back, so that a load holds the packed
// weights and little of the file. kInvalidArgument, naming the tensor, when one is missing, of
// another shape than the configuration says, or no part of the architecture (such a model would be
// computed wrongly); kResourceExhausted when the backend has no room.
absl::StatusOr<Weights> load_weights(const GgufFile& file, const ModelConfig& config,
                                     Backend& backend, const LoadProgress& progress);

}  // namespace pagoda::model
