#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace pagoda::model {
namespace {

// Far above any model there is, and low enough that no product of two of them leaves int64.
constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kMaxContext = 1 << 24;
constexpr int32_t kMaxHidden = 1 << 17;
constexpr int32_t kMaxFfn = 1 << 20;
constexpr int32_t kMaxHeads = 4096;
constexpr int32_t kMaxHeadDim = 1024;
constexpr int32_t kHeadDimStep = 8;  // what attention kernels take at once
constexpr int32_t kMaxVocab = 1 << 20;
constexpr size_t kMaxMerges = 4 * size_t{kMaxVocab};
// The index of added tokens takes a hundred times the bytes of their texts and more.
constexpr size_t kMaxTokenBytes = 64 << 10;
constexpr size_t kMaxAddedTokenBytes = 1 << 10;
constexpr size_t kMaxAddedBytes = 4 << 20;

// Reads keys of one file with their ranges. Every error names the file, the key and the range.
class KeyReader {
 public:
  explicit KeyReader(const GgufFile& file) : file_(file) {}

  absl::StatusOr<int32_t> require_int(const std::string& key, int32_t low, int32_t high) const {
    absl::StatusOr<int64_t> value = file_.get_int(key);
    if (absl::IsNotFound(value.status())) return missing(key);
    if (!value.ok()) return value.status();
    if (*value < low || *value > high) {
      return base::invalid_argument("{}: key '{}' is {}; it must be {} to {}", file_.path(), key,
                                    *value, low, high);
    }
    return static_cast<int32_t>(*value);
  }
  absl::StatusOr<int32_t> int_or(const std::string& key, int32_t fallback, int32_t low,
                                 int32_t high) const {
    if (file_.find(key) == nullptr) return fallback;
    return require_int(key, low, high);
  }

  // NaN is outside every range.
  absl::StatusOr<double> require_float(const std::string& key, double low, double high) const {
    absl::StatusOr<double> value = file_.get_float(key);
    if (absl::IsNotFound(value.status())) return missing(key);
    if (!value.ok()) return value.status();
    if (!(*value >= low && *value <= high)) {
      return base::invalid_argument("{}: key '{}' is {}; it must be {} to {}", file_.path(), key,
                                    *value, low, high);
    }
    return *value;
  }
  absl::StatusOr<double> float_or(const std::string& key, double fallback, double low,
                                  double high) const {
    if (file_.find(key) == nullptr) return fallback;
    return require_float(key, low, high);
  }

  absl::StatusOr<std::string> require_string(const std::string& key) const {
    absl::StatusOr<std::string> value = file_.get_string(key);
    if (absl::IsNotFound(value.status())) return missing(key);
    return value;
  }
  absl::StatusOr<std::string> string_or(const std::string& key, std::string_view fallback) const {
    if (file_.find(key) == nullptr) return std::string(fallback);
    return file_.get_string(key);
  }

  absl::Status missing(const std::string& key) const {
    return base::invalid_argument("{}: key '{}' is missing", file_.path(), key);
  }

 private:
  const GgufFile& file_;
};

absl::Status unimplemented(const GgufFile& file, std::string_view key, std::string_view value,
                           std::string_view supported) {
  return base::status_error(absl::StatusCode::kUnimplemented,
                            "{}: key '{}' is '{}', which is not supported; supported is {}",
                            file.path(), key, value, supported);
}

// Llama 3.1's scaling comes as a tensor of divisors, one for each pair.
absl::StatusOr<std::vector<float>> read_freq_factors(const GgufFile& file, int32_t rope_dim) {
  const GgufTensor* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->type != DType::kF32 || tensor->dims != std::vector<int64_t>{rope_dim / 2}) {
    return base::invalid_argument("{}: tensor '{}' must be F32 of shape [{}]", file.path(),
                                  tensor->name, rope_dim / 2);
  }
  std::vector<float> factors(static_cast<size_t>(rope_dim / 2));
  std::memcpy(factors.data(), tensor->data.data(), tensor->data.size());
  for (const float factor : factors) {
    if (!(factor >= 1e-3F && factor <= 1e6F)) {
      return base::invalid_argument("{}: tensor '{}' holds {}; its values must be 0.001 to 1e6",
                                    file.path(), tensor->name, factor);
    }
  }
  return factors;
}

absl::StatusOr<RopeScaling> read_scaling_type(const GgufFile& file, const KeyReader& keys) {
  // Files from before the type was written mean linear by a factor alone.
  const bool has_factor = file.find("llama.rope.scaling.factor") != nullptr ||
                          file.find("llama.rope.scale_linear") != nullptr;
  const std::string key = "llama.rope.scaling.type";
  ASSIGN_OR_RETURN(const std::string type, keys.string_or(key, has_factor ? "linear" : "none"));
  if (type == "none") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "yarn") return RopeScaling::kYarn;
  return unimplemented(file, key, type, "'none', 'linear' and 'yarn'");
}

absl::Status read_yarn(const KeyReader& keys, int32_t context_len, RopeConfig& rope) {
  const std::string prefix = "llama.rope.scaling.";
  ASSIGN_OR_RETURN(rope.original_context,
                   keys.int_or(prefix + "original_context_length", context_len, 1, kMaxContext));
  ASSIGN_OR_RETURN(rope.yarn_beta_fast,
                   keys.float_or(prefix + "yarn_beta_fast", rope.yarn_beta_fast, 1e-3, 1e6));
  ASSIGN_OR_RETURN(rope.yarn_beta_slow,
                   keys.float_or(prefix + "yarn_beta_slow", rope.yarn_beta_slow, 1e-3, 1e6));
  // How far the ramp is mixed in; every YaRN model mixes it in whole.
  RETURN_IF_ERROR(keys.float_or(prefix + "yarn_ext_factor", 1, 1, 1).status());
  return absl::OkStatus();
}

// YaRN's softmax temperature, as a factor of cos and sin.
double yarn_attention_factor(double factor) { return 0.1 * std::log(factor) + 1.0; }

absl::StatusOr<RopeConfig> read_rope(const GgufFile& file, const KeyReader& keys, int32_t head_dim,
                                     int32_t context_len) {
  RopeConfig rope;
  const std::string dim_key = "llama.rope.dimension_count";
  ASSIGN_OR_RETURN(rope.dim, keys.int_or(dim_key, head_dim, 2, head_dim));
  if (rope.dim % 2 != 0) {
    return base::invalid_argument("{}: key '{}' is {}; it must be even", file.path(), dim_key,
                                  rope.dim);
  }
  ASSIGN_OR_RETURN(rope.freq_base, keys.float_or("llama.rope.freq_base", 10000, 1.001, 1e12));
  ASSIGN_OR_RETURN(rope.freq_factors, read_freq_factors(file, rope.dim));
  ASSIGN_OR_RETURN(rope.scaling, read_scaling_type(file, keys));
  if (rope.scaling != RopeScaling::kNone) {
    const std::string key = "llama.rope.scaling.factor";
    const std::string old_key = "llama.rope.scale_linear";
    const bool old = file.find(key) == nullptr && file.find(old_key) != nullptr;
    ASSIGN_OR_RETURN(rope.factor, keys.require_float(old ? old_key : key, 1, 1e6));
  } else if (!rope.freq_factors.empty()) {
    rope.scaling = RopeScaling::kLlama3;
  }
  if (rope.scaling == RopeScaling::kYarn) RETURN_IF_ERROR(read_yarn(keys, context_len, rope));

  // The key multiplies what YaRN computes from the factor.
  const std::string attn_key = "llama.rope.scaling.attn_factor";
  if (file.find(attn_key) != nullptr) {
    ASSIGN_OR_RETURN(rope.attention_factor, keys.require_float(attn_key, 1e-3, 1e3));
    if (rope.scaling == RopeScaling::kYarn) {
      rope.attention_factor *= yarn_attention_factor(rope.factor);
    }
  }
  return rope;
}

absl::Status read_heads(const GgufFile& file, const KeyReader& keys, ModelConfig& config) {
  const std::string heads_key = "llama.attention.head_count";
  const std::string kv_heads_key = "llama.attention.head_count_kv";
  ASSIGN_OR_RETURN(config.n_heads, keys.require_int(heads_key, 1, kMaxHeads));
  ASSIGN_OR_RETURN(config.n_kv_heads, keys.int_or(kv_heads_key, config.n_heads, 1, kMaxHeads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return base::invalid_argument("{}: key '{}' is {}; it must divide '{}', which is {}",
                                  file.path(), kv_heads_key, config.n_kv_heads, heads_key,
                                  config.n_heads);
  }
  const std::string key_len = "llama.attention.key_length";
  const std::string value_len = "llama.attention.value_length";
  if (file.find(key_len) == nullptr && config.hidden_dim % config.n_heads != 0) {
    return base::invalid_argument("{}: key '{}' is {}; it must divide '{}', which is {}",
                                  file.path(), heads_key, config.n_heads, "llama.embedding_length",
                                  config.hidden_dim);
  }
  ASSIGN_OR_RETURN(config.head_dim,
                   keys.int_or(key_len, config.hidden_dim / config.n_heads, 1, kMaxHeadDim));
  if (config.head_dim % kHeadDimStep != 0 || config.head_dim > kMaxHeadDim) {
    return base::invalid_argument(
        "{}: the head dimension (key '{}') is {}; it must be a multiple of {}, at most {}",
        file.path(), key_len, config.head_dim, kHeadDimStep, kMaxHeadDim);
  }
  ASSIGN_OR_RETURN(const int32_t v_dim, keys.int_or(value_len, config.head_dim, 1, kMaxHeadDim));
  if (v_dim != config.head_dim) {
    return base::invalid_argument("{}: key '{}' is {}; it must equal '{}', which is {}",
                                  file.path(), value_len, v_dim, key_len, config.head_dim);
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> read_n_vocab(const GgufFile& file, const KeyReader& keys) {
  const std::string key = "llama.vocab_size";
  if (file.find(key) != nullptr) return keys.require_int(key, 1, kMaxVocab);
  const auto tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!tokens.ok()) return keys.missing(key);
  if ((*tokens)->empty() || (*tokens)->size() > static_cast<size_t>(kMaxVocab)) {
    return base::invalid_argument(
        "{}: key 'tokenizer.ggml.tokens' has {} values; it must have 1 to {}", file.path(),
        (*tokens)->size(), kMaxVocab);
  }
  return static_cast<int32_t>((*tokens)->size());
}

absl::StatusOr<std::vector<TokenKind>> read_token_kinds(const GgufFile& file, size_t n_vocab) {
  const std::string key = "tokenizer.ggml.token_type";
  if (file.find(key) == nullptr) return std::vector<TokenKind>(n_vocab, TokenKind::kNormal);
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.get_ints(key));
  if (types.size() != n_vocab) {
    return base::invalid_argument("{}: key '{}' has {} values, but there are {} tokens",
                                  file.path(), key, types.size(), n_vocab);
  }
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,      TokenKind::kUnknown, TokenKind::kControl,
                                  TokenKind::kUserDefined, TokenKind::kUnused,  TokenKind::kByte};
  std::vector<TokenKind> kinds;
  kinds.reserve(n_vocab);
  for (const int64_t type : types) {
    if (type < 1 || type > 6) {
      return base::invalid_argument("{}: key '{}': element {} is {}; it must be 1 to 6",
                                    file.path(), key, kinds.size(), type);
    }
    kinds.push_back(kKinds[type - 1]);
  }
  return kinds;
}

// Copies a list of min_count to max_count texts; another one is refused before it is copied.
absl::StatusOr<std::vector<std::string>> read_texts(const GgufFile& file, const KeyReader& keys,
                                                    const char* key, size_t min_count,
                                                    size_t max_count) {
  const auto found = file.get_strings(key);
  if (absl::IsNotFound(found.status())) return keys.missing(key);
  if (!found.ok()) return found.status();
  const size_t count = (*found)->size();
  if (count < min_count || count > max_count) {
    return base::invalid_argument("{}: key '{}' has {} values; it must have {} to {}", file.path(),
                                  key, count, min_count, max_count);
  }
  return **found;
}

absl::Status check_token_lengths(const GgufFile& file, const Vocabulary& vocab) {
  constexpr const char* kKey = "tokenizer.ggml.tokens";
  size_t added_bytes = 0;
  for (size_t id = 0; id < vocab.texts.size(); ++id) {
    const size_t len = vocab.texts[id].size();
    const TokenKind kind = vocab.kinds[id];
    const bool added = is_special(kind) || kind == TokenKind::kUserDefined;
    const size_t most = added ? kMaxAddedTokenBytes : kMaxTokenBytes;
    if (len > most) {
      return base::invalid_argument("{}: key '{}': element {} has {} bytes; {} may have at most {}",
                                    file.path(), kKey, id, len,
                                    added ? "an added token" : "a token", most);
    }
    if (added) added_bytes += len;
  }
  if (added_bytes > kMaxAddedBytes) {
    return base::invalid_argument(
        "{}: key '{}': the added tokens have {} bytes together; they may have at most {}",
        file.path(), kKey, added_bytes, kMaxAddedBytes);
  }
  return absl::OkStatus();
}

// Ends by key are believed; ends by name only when the token is a control token, since a file for
// chat often names as its end of sequence only one of the two that its template uses.
absl::Status read_end_ids(const KeyReader& keys, Vocabulary& vocab) {
  const auto last_id = static_cast<int32_t>(vocab.texts.size()) - 1;
  const auto add = [&](TokenId id) {
    if (id >= 0 && std::ranges::find(vocab.end_ids, id) == vocab.end_ids.end()) {
      vocab.end_ids.push_back(id);
    }
  };
  add(vocab.eos);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const TokenId id, keys.int_or(key, -1, 0, last_id));
    add(id);
  }
  constexpr std::string_view kEndTexts[] = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>",
                                            "<|end_of_text|>"};
  for (size_t id = 0; id < vocab.texts.size(); ++id) {
    if (vocab.kinds[id] == TokenKind::kControl &&
        std::ranges::find(kEndTexts, vocab.texts[id]) != std::end(kEndTexts)) {
      add(static_cast<TokenId>(id));
    }
  }
  return absl::OkStatus();
}

// Pairs below the ramp turn often within the original context and keep their frequency; pairs above
// it turn less than beta_slow times and are interpolated; in between the two are mixed.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeConfig& rope) {
    low_ = std::max(0.0, std::floor(pair_of_turns(rope, rope.yarn_beta_fast)));
    high_ = std::min(rope.dim - 1.0, std::ceil(pair_of_turns(rope, rope.yarn_beta_slow)));
  }
  double interpolation(int32_t pair) const {
    return std::clamp((pair - low_) / std::max(0.001, high_ - low_), 0.0, 1.0);
  }

 private:
  // The pair, as a real number, that turns so many times over the original context.
  static double pair_of_turns(const RopeConfig& rope, double turns) {
    const double context = static_cast<double>(rope.original_context);
    return rope.dim * std::log(context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.freq_base));
  }
  double low_ = 0;
  double high_ = 0;
};

}  // namespace

absl::StatusOr<ModelConfig> config_from_gguf(const GgufFile& file) {
  const KeyReader keys(file);
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, keys.require_string("general.architecture"));
  if (config.architecture != "llama") {
    return unimplemented(file, "general.architecture", config.architecture, "'llama'");
  }
  ASSIGN_OR_RETURN(config.name, keys.string_or("general.name", ""));
  ASSIGN_OR_RETURN(config.n_layers, keys.require_int("llama.block_count", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.context_len, keys.require_int("llama.context_length", 1, kMaxContext));
  ASSIGN_OR_RETURN(config.hidden_dim, keys.require_int("llama.embedding_length", 1, kMaxHidden));
  ASSIGN_OR_RETURN(config.ffn_dim, keys.require_int("llama.feed_forward_length", 1, kMaxFfn));
  RETURN_IF_ERROR(read_heads(file, keys, config));
  ASSIGN_OR_RETURN(config.n_vocab, read_n_vocab(file, keys));
  ASSIGN_OR_RETURN(const double eps,
                   keys.require_float("llama.attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config.rope, read_rope(file, keys, config.head_dim, config.context_len));
  config.tied_output = file.find_tensor("output.weight") == nullptr;

  // Kinds of llama that would be computed wrongly if the key were passed over.
  for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"}) {
    ASSIGN_OR_RETURN(const int32_t value, keys.int_or(key, 0, 0, kMaxContext));
    if (value != 0) return unimplemented(file, key, fmt::format("{}", value), "0");
  }

  LayerGroup all;
  for (int32_t layer = 0; layer < config.n_layers; ++layer) all.layers.push_back(layer);
  config.groups.push_back(std::move(all));
  return config;
}

absl::StatusOr<Vocabulary> vocabulary_from_gguf(const GgufFile& file) {
  const KeyReader keys(file);
  ASSIGN_OR_RETURN(const std::string model, keys.require_string("tokenizer.ggml.model"));
  if (model != "gpt2") return unimplemented(file, "tokenizer.ggml.model", model, "'gpt2'");

  Vocabulary vocab;
  ASSIGN_OR_RETURN(vocab.texts, read_texts(file, keys, "tokenizer.ggml.tokens", 1, kMaxVocab));
  ASSIGN_OR_RETURN(vocab.merges, read_texts(file, keys, "tokenizer.ggml.merges", 0, kMaxMerges));
  ASSIGN_OR_RETURN(vocab.kinds, read_token_kinds(file, vocab.texts.size()));
  RETURN_IF_ERROR(check_token_lengths(file, vocab));
  ASSIGN_OR_RETURN(vocab.pre_tokenizer, keys.string_or("tokenizer.ggml.pre", "default"));

  const auto last_id = static_cast<int32_t>(vocab.texts.size()) - 1;
  ASSIGN_OR_RETURN(vocab.bos, keys.int_or("tokenizer.ggml.bos_token_id", -1, 0, last_id));
  ASSIGN_OR_RETURN(vocab.eos, keys.int_or("tokenizer.ggml.eos_token_id", -1, 0, last_id));
  RETURN_IF_ERROR(read_end_ids(keys, vocab));

  // Without the key, vocabularies of Llama 3 begin a text with their bos and the others do not.
  vocab.add_bos = vocab.pre_tokenizer == "llama-bpe";
  if (file.find("tokenizer.ggml.add_bos_token") != nullptr) {
    ASSIGN_OR_RETURN(vocab.add_bos, file.get_bool("tokenizer.ggml.add_bos_token"));
  }
  if (vocab.add_bos && vocab.bos < 0) {
    if (file.find("tokenizer.ggml.add_bos_token") != nullptr) {
      return keys.missing("tokenizer.ggml.bos_token_id");
    }
    vocab.add_bos = false;
  }
  ASSIGN_OR_RETURN(vocab.chat_template, keys.string_or("tokenizer.chat_template", ""));
  return vocab;
}

std::vector<float> rope_inv_freq(const RopeConfig& rope) {
  std::optional<YarnRamp> ramp;
  if (rope.scaling == RopeScaling::kYarn) ramp.emplace(rope);
  std::vector<float> inv_freq;
  for (int32_t pair = 0; pair < rope.dim / 2; ++pair) {
    double freq = std::pow(rope.freq_base, -2.0 * pair / rope.dim);
    if (!rope.freq_factors.empty()) freq /= rope.freq_factors[static_cast<size_t>(pair)];
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kLlama3:
        break;
      case RopeScaling::kLinear:
        freq /= rope.factor;
        break;
      case RopeScaling::kYarn: {
        const double part = ramp->interpolation(pair);
        freq = freq * (1 - part) + freq / rope.factor * part;
        break;
      }
    }
    inv_freq.push_back(static_cast<float>(freq));
  }
  return inv_freq;
}

float rope_magnitude(const RopeConfig& rope) {
  if (rope.attention_factor > 0) return static_cast<float>(rope.attention_factor);
  if (rope.scaling == RopeScaling::kYarn) {
    return static_cast<float>(yarn_attention_factor(rope.factor));
  }
  return 1;
}

}  // namespace pagoda::model
