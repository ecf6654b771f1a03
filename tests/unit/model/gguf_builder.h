// Writes GGUF files into memory: any header byte by byte, and small random llamas of every tensor
// type.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/dtype.h"

namespace pagoda::model {

// Little-endian bytes, one after another.
class Bytes {
 public:
  template <typename T>
  Bytes& number(T value) {
    return append(&value, sizeof(T));
  }
  Bytes& u8(uint8_t value) { return number(value); }
  Bytes& u32(uint32_t value) { return number(value); }
  Bytes& u64(uint64_t value) { return number(value); }
  Bytes& raw(std::string_view text) { return append(text.data(), text.size()); }
  Bytes& string(std::string_view text) { return u64(text.size()).raw(text); }
  Bytes& bytes(const Bytes& other) { return append(other.data_.data(), other.size()); }
  Bytes& zeros(size_t n) {
    data_.resize(data_.size() + n);
    return *this;
  }
  // Magic, version and counts.
  static Bytes header(uint64_t n_tensors, uint64_t n_keys) {
    Bytes bytes;
    bytes.raw("GGUF").u32(3).u64(n_tensors).u64(n_keys);
    return bytes;
  }
  Bytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                uint64_t offset) {
    string(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  size_t size() const { return data_.size(); }
  std::vector<uint8_t> take() const { return data_; }

 private:
  Bytes& append(const void* from, size_t n) {
    const size_t at = data_.size();
    data_.resize(at + n);
    if (n > 0) std::memcpy(data_.data() + at, from, n);
    return *this;
  }
  std::vector<uint8_t> data_;
};

// A well-formed file, key by key and tensor by tensor.
class GgufBuilder {
 public:
  GgufBuilder& u32(std::string_view key, uint32_t value) {
    open(key, 4).u32(value);
    return *this;
  }
  GgufBuilder& f32(std::string_view key, float value) {
    open(key, 6).number(value);
    return *this;
  }
  GgufBuilder& boolean(std::string_view key, bool value) {
    open(key, 7).u8(value ? 1 : 0);
    return *this;
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    open(key, 8).string(value);
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    open(key, 9).u32(8).u64(values.size());
    for (const std::string& value : values) keys_.string(value);
    return *this;
  }
  GgufBuilder& ints(std::string_view key, const std::vector<int32_t>& values) {
    open(key, 9).u32(5).u64(values.size());
    for (const int32_t value : values) keys_.number(value);
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<int64_t>& dims, DType type,
                      const std::vector<uint8_t>& data) {
    std::vector<uint64_t> file_dims(dims.begin(), dims.end());
    infos_.tensor(name, file_dims, type_id(type), data_.size());
    data_.raw({reinterpret_cast<const char*>(data.data()), data.size()});
    data_.zeros((32 - data_.size() % 32) % 32);
    ++n_tensors_;
    return *this;
  }
  std::vector<uint8_t> build() const {
    Bytes file = Bytes::header(n_tensors_, n_keys_);
    file.bytes(keys_).bytes(infos_);
    file.zeros((32 - file.size() % 32) % 32).bytes(data_);
    return file.take();
  }

  static uint32_t type_id(DType type) {
    switch (type) {
      case DType::kF32:
        return 0;
      case DType::kF16:
        return 1;
      case DType::kQ4_0:
        return 2;
      case DType::kQ4_1:
        return 3;
      case DType::kQ5_0:
        return 6;
      case DType::kQ5_1:
        return 7;
      case DType::kQ8_0:
        return 8;
      case DType::kQ4_K:
        return 12;
      case DType::kQ5_K:
        return 13;
      case DType::kQ6_K:
        return 14;
      case DType::kBF16:
        return 30;
    }
    return 255;
  }

 private:
  Bytes& open(std::string_view key, uint32_t type) {
    ++n_keys_;
    return keys_.string(key).u32(type);
  }
  Bytes keys_;
  Bytes infos_;
  Bytes data_;
  uint64_t n_keys_ = 0;
  uint64_t n_tensors_ = 0;
};

inline constexpr DType kAllTypes[] = {
    DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
    DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
};

// n elements of about the given standard deviation, mean zero: random quants under fixed scales.
inline std::vector<uint8_t> random_tensor(DType type, int64_t n, float deviation,
                                          std::mt19937& random) {
  std::vector<uint8_t> data(static_cast<size_t>(dtype_row_bytes(type, n)));
  if (!is_quantized(type)) {
    std::normal_distribution<float> normal(0, deviation);
    for (int64_t i = 0; i < n; ++i) {
      const float value = normal(random);
      const uint16_t half = type == DType::kF16
                                ? f32_to_f16(value)
                                : static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      if (type == DType::kF32) {
        std::memcpy(data.data() + i * 4, &value, 4);
      } else {
        std::memcpy(data.data() + i * 2, &half, 2);
      }
    }
    return data;
  }
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  // Where a block's scale and offset are, the deviation of its quants, and the offset's ratio.
  struct Scales {
    int scale_at;
    int offset_at;  // -1: none
    float quant_deviation;
    float ratio;
  };
  const Scales scales = [&]() -> Scales {
    switch (type) {
      case DType::kQ4_0:
        return {0, -1, 4.6F, 0};
      case DType::kQ4_1:
        return {0, 2, 4.6F, -7.5F};
      case DType::kQ5_0:
        return {0, -1, 9.2F, 0};
      case DType::kQ5_1:
        return {0, 2, 9.2F, -15.5F};
      case DType::kQ8_0:
        return {0, -1, 74, 0};
      case DType::kQ4_K:
        return {0, 2, 31 * 6.5F, 7.5F};
      case DType::kQ5_K:
        return {0, 2, 31 * 13.0F, 15.5F};
      case DType::kQ6_K:
        return {208, -1, 74 * 18.0F, 0};
      case DType::kF32:
      case DType::kF16:
      case DType::kBF16:
        break;
    }
    return {0, -1, 1, 0};
  }();
  const float scale = deviation / scales.quant_deviation;
  const uint16_t scale_bits = f32_to_f16(scale);
  const uint16_t offset_bits = f32_to_f16(scale * scales.ratio);
  const auto block_bytes = static_cast<size_t>(dtype_info(type).block_bytes);
  for (size_t block = 0; block < data.size(); block += block_bytes) {
    std::memcpy(data.data() + block + scales.scale_at, &scale_bits, 2);
    if (scales.offset_at >= 0) {
      std::memcpy(data.data() + block + scales.offset_at, &offset_bits, 2);
    }
  }
  return data;
}

// A llama of two layers with grouped-query attention; K-quants fit its widths.
struct TinyLlama {
  DType type = DType::kF32;
  bool tied = false;
  bool biases = false;
  std::string rope_scaling;  // "", "linear", "yarn", "llama3"
  uint32_t seed = 1;

  static constexpr int32_t kLayers = 2;
  static constexpr int32_t kHidden = 256;
  static constexpr int32_t kFfn = 512;
  static constexpr int32_t kHeads = 8;
  static constexpr int32_t kKvHeads = 2;
  static constexpr int32_t kHeadDim = 32;
  static constexpr int32_t kVocab = 288;
  static constexpr int32_t kContext = 2048;
  static constexpr int32_t kControls = 3;

  // The GPT-2 alphabet: each byte as one printable character, in UTF-8.
  static std::vector<std::string> byte_alphabet() {
    std::vector<std::string> alphabet;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      const int point = printable ? byte : next++;
      std::string text;
      if (point < 0x80) {
        text += static_cast<char>(point);
      } else {
        text += static_cast<char>(0xC0 | (point >> 6));
        text += static_cast<char>(0x80 | (point & 0x3F));
      }
      alphabet.push_back(text);
    }
    return alphabet;
  }

  void add_config(GgufBuilder& file) const {
    file.string("general.architecture", "llama").string("general.name", "tiny");
    file.u32("llama.block_count", kLayers).u32("llama.context_length", kContext);
    file.u32("llama.embedding_length", kHidden).u32("llama.feed_forward_length", kFfn);
    file.u32("llama.attention.head_count", kHeads).u32("llama.attention.head_count_kv", kKvHeads);
    file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    file.f32("llama.rope.freq_base", 10000).u32("llama.vocab_size", kVocab);
    if (rope_scaling == "linear" || rope_scaling == "yarn") {
      file.string("llama.rope.scaling.type", rope_scaling).f32("llama.rope.scaling.factor", 4);
      file.u32("llama.rope.scaling.original_context_length", kContext / 4);
    }
  }

  void add_vocabulary(GgufBuilder& file) const {
    std::vector<std::string> texts = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    std::vector<int32_t> types(kControls, 3);
    std::vector<std::string> merges;
    for (const std::string& text : byte_alphabet()) texts.push_back(text);
    while (texts.size() < kVocab) {
      const char first = static_cast<char>('a' + merges.size() % 26);
      const char second = merges.size() < 26 ? 'a' : 'b';
      merges.push_back(std::string(1, first) + ' ' + second);
      texts.push_back(std::string(1, first) + second);
    }
    types.resize(kVocab, 1);
    file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "gpt-2");
    file.strings("tokenizer.ggml.tokens", texts).ints("tokenizer.ggml.token_type", types);
    file.strings("tokenizer.ggml.merges", merges);
    file.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
    file.string("tokenizer.chat_template", "{{ messages[0]['content'] }}");
  }

  void add_tensors(GgufBuilder& file) const {
    std::mt19937 random(seed);
    const auto matrix = [&](const std::string& name, int32_t n, int32_t k) {
      const float deviation = 0.7F / std::sqrt(static_cast<float>(k));
      file.tensor(name, {k, n}, type, random_tensor(type, int64_t{n} * k, deviation, random));
    };
    const auto vector = [&](const std::string& name, int32_t n, float mean, float deviation) {
      std::vector<uint8_t> data(static_cast<size_t>(n) * 4);
      std::normal_distribution<float> normal(mean, deviation);
      for (int32_t i = 0; i < n; ++i) {
        const float value = normal(random);
        std::memcpy(data.data() + i * 4, &value, 4);
      }
      file.tensor(name, {n}, DType::kF32, data);
    };
    const int32_t q_dim = kHeads * kHeadDim;
    const int32_t kv_dim = kKvHeads * kHeadDim;
    file.tensor("token_embd.weight", {kHidden, kVocab}, type,
                random_tensor(type, int64_t{kVocab} * kHidden, 0.7F, random));
    for (int32_t i = 0; i < kLayers; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      const std::pair<const char*, std::pair<int32_t, int32_t>> parts[] = {
          {"attn_q", {q_dim, kHidden}},  {"attn_k", {kv_dim, kHidden}},
          {"attn_v", {kv_dim, kHidden}}, {"attn_output", {kHidden, q_dim}},
          {"ffn_gate", {kFfn, kHidden}}, {"ffn_up", {kFfn, kHidden}},
          {"ffn_down", {kHidden, kFfn}},
      };
      vector(prefix + "attn_norm.weight", kHidden, 1, 0.2F);
      vector(prefix + "ffn_norm.weight", kHidden, 1, 0.2F);
      for (const auto& [name, shape] : parts) {
        matrix(prefix + name + ".weight", shape.first, shape.second);
        // Of the stacked ones, attn_k has none: zeros stand for it.
        if (biases && std::string_view(name) != "attn_k") {
          vector(prefix + name + ".bias", shape.first, 0, 0.3F);
        }
      }
    }
    vector("output_norm.weight", kHidden, 1, 0.2F);
    if (!tied) matrix("output.weight", kVocab, kHidden);
    if (rope_scaling == "llama3") vector("rope_freqs.weight", kHeadDim / 2, 3, 0.5F);
  }

  std::vector<uint8_t> build() const {
    GgufBuilder file;
    add_config(file);
    add_vocabulary(file);
    add_tensors(file);
    return file.build();
  }
};

}  // namespace pagoda::model
