#include "model/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string>

#include "base/check.h"

namespace pagoda::model {
namespace {

// Changes when the digest's recipe does.
constexpr std::string_view kDigestRecipe = "pagoda model 1";

void hash_text(base::Sha256& hash, std::string_view text) {
  hash.update_u64(text.size()).update(std::string(text));
}

void hash_config(base::Sha256& hash, const ModelConfig& config) {
  hash_text(hash, kDigestRecipe);
  hash_text(hash, config.architecture);
  for (const int32_t value : {config.n_layers, config.hidden_dim, config.ffn_dim, config.n_heads,
                              config.n_kv_heads, config.head_dim, config.n_vocab, config.rope.dim,
                              static_cast<int32_t>(config.rope.pairs)}) {
    hash.update_u64(static_cast<uint64_t>(value));
  }
  hash.update_u64(std::bit_cast<uint32_t>(config.norm_eps));
  hash.update_u64(std::bit_cast<uint32_t>(rope_magnitude(config.rope)));
  for (const float freq : rope_inv_freq(config.rope)) {
    hash.update_u64(std::bit_cast<uint32_t>(freq));
  }
  for (const LayerGroup& group : config.groups) {
    hash.update_u64(group.layers.size()).update_u64(static_cast<uint64_t>(group.window));
  }
}

// GGUF writes a vector as [n] and a matrix of n rows as [k, n].
std::string shape_text(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const ModelConfig& config, Backend& backend,
               const LoadProgress& progress)
      : file_(file), config_(config), backend_(backend), progress_(progress) {
    hash_config(hash_, config);
    for (const GgufTensor& tensor : file.tensors()) {
      total_bytes_ += static_cast<int64_t>(tensor.data.size());
    }
  }

  absl::StatusOr<Weights> load() {
    Weights weights;
    ASSIGN_OR_RETURN(weights.embed, matrix("token_embd", config_.n_vocab));
    for (int32_t i = 0; i < config_.n_layers; ++i) {
      ASSIGN_OR_RETURN(LayerWeights layer, load_layer(fmt::format("blk.{}.", i)));
      weights.layers.push_back(std::move(layer));
    }
    ASSIGN_OR_RETURN(weights.output_norm, vector("output_norm.weight", config_.hidden_dim));
    if (!config_.tied_output) {
      ASSIGN_OR_RETURN(weights.untied_output, matrix("output", config_.n_vocab));
    }
    RETURN_IF_ERROR(check_all_used());
    weights.digest = hash_.finish();
    return weights;
  }

 private:
  // One of the tensors that are stacked into a Linear.
  struct Part {
    std::string_view name;  // without ".weight"
    int64_t n = 0;
  };

  absl::StatusOr<LayerWeights> load_layer(const std::string& prefix) {
    const int64_t hidden = config_.hidden_dim;
    const int64_t q_dim = int64_t{config_.n_heads} * config_.head_dim;
    const int64_t kv_dim = int64_t{config_.n_kv_heads} * config_.head_dim;
    const int64_t ffn = config_.ffn_dim;
    LayerWeights layer;
    ASSIGN_OR_RETURN(layer.attn_norm, vector(prefix + "attn_norm.weight", hidden));
    ASSIGN_OR_RETURN(
        layer.qkv,
        linear(prefix, {{"attn_q", q_dim}, {"attn_k", kv_dim}, {"attn_v", kv_dim}}, hidden));
    ASSIGN_OR_RETURN(layer.attn_out, linear(prefix, {{"attn_output", hidden}}, q_dim));
    ASSIGN_OR_RETURN(layer.ffn_norm, vector(prefix + "ffn_norm.weight", hidden));
    ASSIGN_OR_RETURN(layer.gate_up, linear(prefix, {{"ffn_gate", ffn}, {"ffn_up", ffn}}, hidden));
    ASSIGN_OR_RETURN(layer.down, linear(prefix, {{"ffn_down", hidden}}, ffn));
    return layer;
  }

  // The tensor, its shape checked and its content hashed.
  absl::StatusOr<const GgufTensor*> take(const std::string& name,
                                         std::initializer_list<int64_t> dims) {
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      return base::invalid_argument("{}: tensor '{}' is missing", file_.path(), name);
    }
    if (!std::equal(dims.begin(), dims.end(), tensor->dims.begin(), tensor->dims.end())) {
      return base::invalid_argument("{}: tensor '{}' has shape {}; it must be {}", file_.path(),
                                    name, shape_text(tensor->dims),
                                    shape_text({dims.begin(), dims.size()}));
    }
    hash_tensor(*tensor);
    return tensor;
  }

  void hash_tensor(const GgufTensor& tensor) {
    hash_text(hash_, tensor.name);
    hash_text(hash_, dtype_info(tensor.type).name);
    hash_.update_u64(tensor.dims.size());
    for (const int64_t dim : tensor.dims) hash_.update_u64(static_cast<uint64_t>(dim));
    hash_.update(base::xxh3_128(tensor.data));
    used_.insert(tensor.name);
  }

  void finish(const GgufTensor& tensor) {
    file_.drop(tensor);
    done_bytes_ += static_cast<int64_t>(tensor.data.size());
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

  absl::StatusOr<std::unique_ptr<PackedWeight>> matrix(std::string_view name, int64_t n) {
    const int64_t k = config_.hidden_dim;
    ASSIGN_OR_RETURN(const GgufTensor* tensor, take(fmt::format("{}.weight", name), {k, n}));
    const WeightSource source{.data = tensor->data.data(), .type = tensor->type, .n = n, .k = k};
    ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> weight, backend_.pack({&source, 1}, 0, 1));
    finish(*tensor);
    return weight;
  }

  absl::StatusOr<Linear> linear(const std::string& prefix, std::initializer_list<Part> parts,
                                int64_t k) {
    std::vector<const GgufTensor*> tensors;
    std::vector<WeightSource> sources;
    for (const Part& part : parts) {
      ASSIGN_OR_RETURN(const GgufTensor* tensor,
                       take(fmt::format("{}{}.weight", prefix, part.name), {k, part.n}));
      tensors.push_back(tensor);
      sources.push_back({.data = tensor->data.data(), .type = tensor->type, .n = part.n, .k = k});
    }
    Linear result;
    ASSIGN_OR_RETURN(result.weight, backend_.pack(sources, 0, 1));
    for (const GgufTensor* tensor : tensors) finish(*tensor);
    ASSIGN_OR_RETURN(result.bias, stacked_bias(prefix, parts));
    return result;
  }

  // Empty when no part has a bias; zeros stand for a part that has none.
  absl::StatusOr<Buffer> stacked_bias(const std::string& prefix,
                                      std::initializer_list<Part> parts) {
    std::vector<float> values;
    bool any = false;
    for (const Part& part : parts) {
      const std::string name = fmt::format("{}{}.bias", prefix, part.name);
      if (file_.find_tensor(name) == nullptr) {
        values.resize(values.size() + static_cast<size_t>(part.n));
        continue;
      }
      any = true;
      RETURN_IF_ERROR(append_floats(name, part.n, values));
    }
    if (!any) return Buffer();
    return upload(values);
  }

  absl::StatusOr<Buffer> vector(const std::string& name, int64_t n) {
    std::vector<float> values;
    RETURN_IF_ERROR(append_floats(name, n, values));
    return upload(values);
  }

  // A tensor of one dimension, of any float type.
  absl::Status append_floats(const std::string& name, int64_t n, std::vector<float>& values) {
    ASSIGN_OR_RETURN(const GgufTensor* tensor, take(name, {n}));
    if (is_quantized(tensor->type)) {
      return base::invalid_argument("{}: tensor '{}' has type {}; it must be F32, F16 or BF16",
                                    file_.path(), name, dtype_info(tensor->type).name);
    }
    const uint8_t* data = tensor->data.data();
    for (int64_t i = 0; i < n; ++i) {
      uint16_t bits = 0;
      float value = 0;
      if (tensor->type == DType::kF32) {
        std::memcpy(&value, data + i * 4, 4);
      } else {
        std::memcpy(&bits, data + i * 2, 2);
        value = tensor->type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
      }
      values.push_back(value);
    }
    finish(*tensor);
    return absl::OkStatus();
  }

  absl::StatusOr<Buffer> upload(const std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    ASSIGN_OR_RETURN(Buffer buffer, backend_.allocate(bytes));
    const Stream stream = backend_.stream();
    backend_.copy(buffer.as<void>(), values.data(), bytes, stream);
    backend_.wait(backend_.record(stream));
    return buffer;
  }

  absl::Status check_all_used() {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      // Part of the configuration, which is hashed.
      if (tensor.name == "rope_freqs.weight") continue;
      return base::invalid_argument("{}: tensor '{}' is no part of a '{}' model", file_.path(),
                                    tensor.name, config_.architecture);
    }
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  Backend& backend_;
  const LoadProgress& progress_;
  base::Sha256 hash_;
  std::set<std::string_view> used_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace

absl::StatusOr<Weights> load_weights(const GgufFile& file, const ModelConfig& config,
                                     Backend& backend, const LoadProgress& progress) {
  return WeightLoader(file, config, backend, progress).load();
}

}  // namespace pagoda::model
