// What a model is, whatever file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "model/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  double freq_base = 10000;
  int32_t dim = 0;  // elements of a head that turn
  ops::RopePairs pairs = ops::RopePairs::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int64_t original_context = 0;  // YaRN
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  double attention_factor = 0;      // YaRN's, 0: computed from factor
  std::vector<float> freq_factors;  // llama3: [dim/2] divisors from the file's rope_freqs tensor
};

// Layers of one kind share block tables: a group. A llama has a single group of all its layers.
struct LayerGroup {
  std::vector<int32_t> layers;
  int32_t window = 0;  // 0: full attention
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int32_t n_layers = 0;
  int32_t hidden_dim = 0;
  int32_t ffn_dim = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t n_vocab = 0;
  int32_t context_len = 0;
  float norm_eps = 0;
  bool tied_output = false;
  RopeConfig rope;
  std::vector<LayerGroup> groups;
};

// kInvalidArgument naming the key for a missing, contradictory or absurd value (zero heads, a head
// count that the key-value heads do not divide, …); kUnimplemented for another architecture.
absl::StatusOr<ModelConfig> config_from_gguf(const GgufFile& file);
absl::StatusOr<Vocabulary> vocabulary_from_gguf(const GgufFile& file);

// The angle a position turns pair i by, after scaling: [dim / 2].
std::vector<float> rope_inv_freq(const RopeConfig& rope);
// What cos and sin are multiplied by: YaRN's attention factor, else 1.
float rope_magnitude(const RopeConfig& rope);

}  // namespace pagoda::model
