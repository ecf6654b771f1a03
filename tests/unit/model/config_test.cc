#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "tests/unit/model/gguf_builder.h"

namespace pagoda::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<GgufFile> open(const GgufBuilder& builder) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", builder.build());
  auto file = GgufFile::open(fs, "x.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

// Numbers and strings of a llama, to be changed before the file is written.
struct Keys {
  std::map<std::string, uint32_t> ints = {
      {"llama.block_count", 2},          {"llama.context_length", 4096},
      {"llama.embedding_length", 96},    {"llama.feed_forward_length", 256},
      {"llama.attention.head_count", 6}, {"llama.attention.head_count_kv", 2},
      {"llama.vocab_size", 100},
  };
  std::map<std::string, float> floats = {{"llama.attention.layer_norm_rms_epsilon", 1e-6F}};
  std::map<std::string, std::string> strings = {{"general.architecture", "llama"}};

  GgufBuilder builder() const {
    GgufBuilder file;
    for (const auto& [key, value] : ints) file.u32(key, value);
    for (const auto& [key, value] : floats) file.f32(key, value);
    for (const auto& [key, value] : strings) file.string(key, value);
    return file;
  }
  absl::StatusOr<ModelConfig> read() const { return config_from_gguf(*open(builder())); }
};

TEST(ModelConfig, ReadsALlama) {
  const auto config = Keys().read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->n_layers, 2);
  EXPECT_EQ(config->context_len, 4096);
  EXPECT_EQ(config->hidden_dim, 96);
  EXPECT_EQ(config->ffn_dim, 256);
  EXPECT_EQ(config->n_heads, 6);
  EXPECT_EQ(config->n_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->n_vocab, 100);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-6F);
  EXPECT_TRUE(config->tied_output);
  EXPECT_EQ(config->rope.dim, 16);
  EXPECT_EQ(config->rope.freq_base, 10000);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  ASSERT_EQ(config->groups.size(), 1U);
  EXPECT_THAT(config->groups[0].layers, ElementsAre(0, 1));
  EXPECT_EQ(config->groups[0].window, 0);
}

TEST(ModelConfig, HeadWidthMayDifferFromHiddenWidth) {
  Keys keys;
  keys.ints["llama.attention.key_length"] = 32;
  keys.ints["llama.attention.value_length"] = 32;
  keys.ints["llama.rope.dimension_count"] = 8;
  const auto config = keys.read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->rope.dim, 8);
}

TEST(ModelConfig, UntiedWhenThereIsAnOutputMatrix) {
  GgufBuilder builder = Keys().builder();
  builder.tensor("output.weight", {96, 100}, DType::kF16, std::vector<uint8_t>(96 * 100 * 2));
  const auto config = config_from_gguf(*open(builder));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->tied_output);
}

TEST(ModelConfig, RefusesWhatIsMissing) {
  for (const auto& [key, value] : Keys().ints) {
    if (key == "llama.attention.head_count_kv") continue;
    Keys keys;
    keys.ints.erase(key);
    const auto config = keys.read();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(base::message_of(config.status()), "x.gguf: key '" + key + "' is missing");
  }
  Keys keys;
  keys.floats.clear();
  EXPECT_THAT(base::message_of(keys.read().status()), HasSubstr("layer_norm_rms_epsilon"));
  keys.strings.clear();
  EXPECT_THAT(base::message_of(keys.read().status()), HasSubstr("general.architecture"));
}

TEST(ModelConfig, RefusesAbsurdIntegers) {
  struct Case {
    const char* key;
    uint32_t value;
    const char* message;
  };
  const Case cases[] = {
      {"llama.block_count", 0, "'llama.block_count' is 0; it must be 1 to"},
      {"llama.block_count", 5000, "'llama.block_count' is 5000; it must be 1 to"},
      {"llama.context_length", 0, "'llama.context_length' is 0"},
      {"llama.context_length", 0xFFFFFFFF, "'llama.context_length' is 4294967295"},
      {"llama.embedding_length", 0, "'llama.embedding_length' is 0"},
      {"llama.embedding_length", 1U << 31, "'llama.embedding_length' is 2147483648"},
      {"llama.embedding_length", 97, "head_count' is 6; it must divide 'llama.embedding_length'"},
      {"llama.feed_forward_length", 0, "'llama.feed_forward_length' is 0"},
      {"llama.attention.head_count", 0, "'llama.attention.head_count' is 0"},
      {"llama.attention.head_count_kv", 0, "'llama.attention.head_count_kv' is 0"},
      {"llama.attention.head_count_kv", 4, "head_count_kv' is 4; it must divide"},
      {"llama.attention.head_count_kv", 12, "head_count_kv' is 12; it must divide"},
      {"llama.attention.key_length", 0, "'llama.attention.key_length' is 0"},
      {"llama.attention.key_length", 15, "is 15; it must be a multiple of 8"},
      {"llama.attention.value_length", 8, "value_length' is 8; it must equal"},
      {"llama.rope.dimension_count", 0, "'llama.rope.dimension_count' is 0; it must be 2 to 16"},
      {"llama.rope.dimension_count", 3, "'llama.rope.dimension_count' is 3; it must be even"},
      {"llama.rope.dimension_count", 18, "'llama.rope.dimension_count' is 18; it must be 2 to 16"},
      {"llama.vocab_size", 0, "'llama.vocab_size' is 0"},
      {"llama.vocab_size", 1U << 30, "'llama.vocab_size' is 1073741824"},
  };
  for (const Case& test : cases) {
    Keys keys;
    keys.ints[test.key] = test.value;
    const auto config = keys.read();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << test.key;
    EXPECT_THAT(base::message_of(config.status()), StartsWith("x.gguf: "));
    EXPECT_THAT(base::message_of(config.status()), HasSubstr(test.message));
  }
}

TEST(ModelConfig, RefusesAbsurdFloats) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::pair<const char*, float> cases[] = {
      {"llama.attention.layer_norm_rms_epsilon", 0},
      {"llama.attention.layer_norm_rms_epsilon", nan},
      {"llama.attention.layer_norm_rms_epsilon", -1e-5F},
      {"llama.attention.layer_norm_rms_epsilon", 2},
      {"llama.rope.freq_base", 0},
      {"llama.rope.freq_base", 1},
      {"llama.rope.freq_base", infinity},
      {"llama.rope.scaling.factor", 0.5F},
      {"llama.rope.scaling.factor", nan},
      {"llama.rope.scaling.attn_factor", 0},
      {"llama.rope.scaling.yarn_beta_fast", -1},
      {"llama.rope.scaling.yarn_ext_factor", 0.5F},
  };
  for (const auto& [key, value] : cases) {
    Keys keys;
    keys.strings["llama.rope.scaling.type"] = "yarn";
    keys.floats["llama.rope.scaling.factor"] = 4;
    keys.floats[key] = value;
    const auto config = keys.read();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(base::message_of(config.status()), HasSubstr(std::string("key '") + key + "'"));
  }
}

TEST(ModelConfig, SaysWhatIsNotSupported) {
  const std::pair<const char*, const char*> strings[] = {{"general.architecture", "qwen2"},
                                                         {"llama.rope.scaling.type", "longrope"}};
  for (const auto& [key, value] : strings) {
    Keys keys;
    keys.strings[key] = value;
    const auto config = keys.read();
    EXPECT_EQ(config.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(base::message_of(config.status()),
                StartsWith(std::string("x.gguf: key '") + key + "' is '" + value + "'"));
  }
  for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"}) {
    Keys keys;
    keys.ints[key] = 8;
    EXPECT_EQ(keys.read().status().code(), absl::StatusCode::kUnimplemented);
    keys.ints[key] = 0;
    EXPECT_TRUE(keys.read().ok());
  }
}

// Published values: SmolLM2's plain base and Llama 3.1's divisors are products of one power each.
TEST(Rope, PlainAndLinear) {
  RopeConfig rope{.freq_base = 100000, .dim = 64, .freq_factors = {}};
  const std::vector<float> plain = rope_inv_freq(rope);
  ASSERT_EQ(plain.size(), 32U);
  EXPECT_EQ(plain[0], 1);
  EXPECT_FLOAT_EQ(plain[16], static_cast<float>(1 / std::sqrt(100000.0)));
  EXPECT_EQ(rope_magnitude(rope), 1);

  Keys keys;
  keys.floats["llama.rope.scaling.factor"] = 8;  // without a type: linear
  const auto config = keys.read();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->rope.scaling, RopeScaling::kLinear);
  const std::vector<float> linear = rope_inv_freq(config->rope);
  EXPECT_FLOAT_EQ(linear[0], 1.0F / 8);
  EXPECT_FLOAT_EQ(linear[4], 0.01F / 8);
  EXPECT_EQ(rope_magnitude(config->rope), 1);
}

TEST(Rope, Llama3DividesEachPair) {
  GgufBuilder builder = Keys().builder();
  std::vector<uint8_t> data(8 * 4);
  for (int i = 0; i < 8; ++i) {
    const float divisor = static_cast<float>(i + 1);
    std::memcpy(data.data() + i * 4, &divisor, 4);
  }
  builder.tensor("rope_freqs.weight", {8}, DType::kF32, data);
  const auto config = config_from_gguf(*open(builder));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.scaling, RopeScaling::kLlama3);
  const std::vector<float> freqs = rope_inv_freq(config->rope);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(freqs[static_cast<size_t>(i)],
                    static_cast<float>(std::pow(10000.0, -i / 8.0) / (i + 1)));
  }
}

TEST(Rope, RefusesWrongDivisors) {
  const float values[] = {0, -1, std::numeric_limits<float>::quiet_NaN(), 1e30F};
  for (const float value : values) {
    GgufBuilder builder = Keys().builder();
    std::vector<uint8_t> data(8 * 4);
    for (int i = 0; i < 8; ++i) std::memcpy(data.data() + i * 4, &value, 4);
    builder.tensor("rope_freqs.weight", {8}, DType::kF32, data);
    EXPECT_THAT(base::message_of(config_from_gguf(*open(builder)).status()),
                HasSubstr("tensor 'rope_freqs.weight' holds"));
  }
  GgufBuilder builder = Keys().builder();
  builder.tensor("rope_freqs.weight", {9}, DType::kF32, std::vector<uint8_t>(36));
  EXPECT_THAT(base::message_of(config_from_gguf(*open(builder)).status()),
              HasSubstr("tensor 'rope_freqs.weight' must be F32 of shape [8]"));
}

// Peng et al. 2023, section 3.2: pairs that turn more than beta_fast times over the original
// context keep their frequency, those that turn less than beta_slow times are interpolated whole.
TEST(Rope, Yarn) {
  RopeConfig rope{.freq_base = 10000,
                  .dim = 128,
                  .scaling = RopeScaling::kYarn,
                  .factor = 16,
                  .original_context = 4096,
                  .freq_factors = {}};
  RopeConfig plain{.freq_base = 10000, .dim = 128, .freq_factors = {}};
  const std::vector<float> scaled = rope_inv_freq(rope);
  const std::vector<float> unscaled = rope_inv_freq(plain);
  int n_kept = 0;
  int n_interpolated = 0;
  float last_ratio = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double turns = 4096 * double{unscaled[i]} / (2 * std::numbers::pi);
    const float ratio = unscaled[i] / scaled[i];
    EXPECT_GE(ratio, last_ratio * 0.999999F) << i;
    last_ratio = ratio;
    // The ramp's ends are rounded outwards to whole pairs, so the two next to each are mixed.
    if (turns > 32 * 1.16) {
      EXPECT_EQ(scaled[i], unscaled[i]) << i;
      ++n_kept;
    } else if (turns < 1 / 1.16) {
      EXPECT_FLOAT_EQ(scaled[i] * 16, unscaled[i]) << i;
      ++n_interpolated;
    } else if (turns < 32 && turns > 1) {
      EXPECT_GT(ratio, 1) << i;
      EXPECT_LT(ratio, 16) << i;
    }
  }
  // d ln(4096 / (32 · 2π)) / (2 ln 10000) = 20.9 and, of one turn, 45.03.
  EXPECT_EQ(n_kept, 20);
  EXPECT_EQ(n_interpolated, 17);
  EXPECT_FLOAT_EQ(scaled[33], unscaled[33] * (1 - 13.0F / 26) + unscaled[33] / 16 * 13 / 26);
  EXPECT_FLOAT_EQ(rope_magnitude(rope), static_cast<float>(0.1 * std::log(16.0) + 1));
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_magnitude(rope), 1.25F);
}

TEST(Rope, YarnKeys) {
  Keys keys;
  keys.strings["llama.rope.scaling.type"] = "yarn";
  EXPECT_THAT(base::message_of(keys.read().status()),
              HasSubstr("key 'llama.rope.scaling.factor' is missing"));
  keys.floats["llama.rope.scaling.factor"] = 4;
  keys.floats["llama.rope.scaling.yarn_beta_fast"] = 16;
  keys.ints["llama.rope.scaling.original_context_length"] = 1024;
  auto config = keys.read();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config->rope.original_context, 1024);
  EXPECT_EQ(config->rope.yarn_beta_fast, 16);
  EXPECT_EQ(config->rope.yarn_beta_slow, 1);
  EXPECT_FLOAT_EQ(rope_magnitude(config->rope), static_cast<float>(0.1 * std::log(4.0) + 1));
  keys.floats["llama.rope.scaling.attn_factor"] = 0.5;
  config = keys.read();
  ASSERT_TRUE(config.ok());
  EXPECT_FLOAT_EQ(rope_magnitude(config->rope), static_cast<float>(0.05 * std::log(4.0) + 0.5));
}

// A vocabulary of five tokens, three of them control tokens.
struct VocabularyKeys {
  std::vector<std::string> texts = {"<s>", "<|im_end|>", "<|endoftext|>", "a", "b"};
  std::vector<int32_t> types = {3, 3, 3, 1, 1};
  std::map<std::string, uint32_t> ints = {{"tokenizer.ggml.bos_token_id", 0},
                                          {"tokenizer.ggml.eos_token_id", 2}};
  std::map<std::string, std::string> strings = {{"tokenizer.ggml.model", "gpt2"},
                                                {"tokenizer.ggml.pre", "smollm"}};
  std::vector<std::string> merges = {"a b"};
  std::vector<bool> add_bos;  // none or one

  absl::StatusOr<Vocabulary> read() const {
    GgufBuilder file;
    file.strings("tokenizer.ggml.tokens", texts).strings("tokenizer.ggml.merges", merges);
    file.ints("tokenizer.ggml.token_type", types);
    for (const auto& [key, value] : ints) file.u32(key, value);
    for (const auto& [key, value] : strings) file.string(key, value);
    if (!add_bos.empty()) file.boolean("tokenizer.ggml.add_bos_token", add_bos[0]);
    return vocabulary_from_gguf(*open(file));
  }
};

TEST(VocabularyFromGguf, ReadsAll) {
  VocabularyKeys keys;
  keys.types = {3, 3, 3, 4, 6};
  keys.strings["tokenizer.chat_template"] = "{{ x }}";
  const auto vocab = keys.read();
  ASSERT_TRUE(vocab.ok()) << vocab.status();
  EXPECT_EQ(vocab->texts, keys.texts);
  EXPECT_EQ(vocab->merges, keys.merges);
  EXPECT_THAT(vocab->kinds,
              ElementsAre(TokenKind::kControl, TokenKind::kControl, TokenKind::kControl,
                          TokenKind::kUserDefined, TokenKind::kByte));
  EXPECT_EQ(vocab->pre_tokenizer, "smollm");
  EXPECT_EQ(vocab->bos, 0);
  EXPECT_EQ(vocab->eos, 2);
  EXPECT_FALSE(vocab->add_bos);
  EXPECT_EQ(vocab->chat_template, "{{ x }}");
}

TEST(VocabularyFromGguf, EndsByKeyAndByName) {
  VocabularyKeys keys;
  EXPECT_THAT(keys.read()->end_ids, ElementsAre(2, 1));
  keys.ints["tokenizer.ggml.eos_token_id"] = 1;
  EXPECT_THAT(keys.read()->end_ids, ElementsAre(1));
  keys.ints["tokenizer.ggml.eot_token_id"] = 3;
  keys.ints["tokenizer.ggml.eom_token_id"] = 4;
  EXPECT_THAT(keys.read()->end_ids, ElementsAre(1, 3, 4));
  // As text of a vocabulary it ends nothing.
  keys = VocabularyKeys();
  keys.types = {3, 1, 3, 1, 1};
  EXPECT_THAT(keys.read()->end_ids, ElementsAre(2));
  keys.ints.clear();
  EXPECT_THAT(keys.read()->end_ids, ElementsAre());
  EXPECT_EQ(keys.read()->bos, -1);
}

TEST(VocabularyFromGguf, AddsBosByKeyOrPreTokenizer) {
  VocabularyKeys keys;
  keys.strings["tokenizer.ggml.pre"] = "llama-bpe";
  EXPECT_TRUE(keys.read()->add_bos);
  keys.add_bos = {false};
  EXPECT_FALSE(keys.read()->add_bos);
  keys.strings["tokenizer.ggml.pre"] = "smollm";
  keys.add_bos = {true};
  EXPECT_TRUE(keys.read()->add_bos);
  keys.ints.erase("tokenizer.ggml.bos_token_id");
  EXPECT_THAT(base::message_of(keys.read().status()),
              HasSubstr("'tokenizer.ggml.bos_token_id' is missing"));
}

TEST(VocabularyFromGguf, Refuses) {
  struct Case {
    std::function<void(VocabularyKeys&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& keys) { keys.types[1] = 0; }, "'tokenizer.ggml.token_type': element 1 is 0"},
      {[](auto& keys) { keys.types[4] = 7; }, "'tokenizer.ggml.token_type': element 4 is 7"},
      {[](auto& keys) { keys.types.pop_back(); }, "token_type' has 4 values, but there are 5"},
      {[](auto& keys) { keys.ints["tokenizer.ggml.eos_token_id"] = 5; },
       "'tokenizer.ggml.eos_token_id' is 5; it must be 0 to 4"},
      {[](auto& keys) { keys.ints["tokenizer.ggml.bos_token_id"] = 0xFFFFFFFF; },
       "'tokenizer.ggml.bos_token_id' is 4294967295"},
      {[](auto& keys) { keys.ints["tokenizer.ggml.eot_token_id"] = 9; },
       "'tokenizer.ggml.eot_token_id' is 9"},
      {[](auto& keys) { keys.texts.clear(); }, "'tokenizer.ggml.tokens' has 0 values"},
      {[](auto& keys) { keys.texts[1].assign(1025, 'x'); },
       "'tokenizer.ggml.tokens': element 1 has 1025 bytes; an added token may have at most 1024"},
      {[](auto& keys) { keys.texts[3].assign(65537, 'x'); },
       "'tokenizer.ggml.tokens': element 3 has 65537 bytes; a token may have at most 65536"},
      {[](auto& keys) { keys.merges.assign((4U << 20) + 1, ""); },
       "'tokenizer.ggml.merges' has 4194305 values; it must have 0 to 4194304"},
      {[](auto& keys) { keys.strings.erase("tokenizer.ggml.model"); },
       "'tokenizer.ggml.model' is missing"},
  };
  for (const Case& test : cases) {
    VocabularyKeys keys;
    test.change(keys);
    const auto vocab = keys.read();
    EXPECT_EQ(vocab.status().code(), absl::StatusCode::kInvalidArgument) << test.message;
    EXPECT_THAT(base::message_of(vocab.status()), HasSubstr(test.message));
  }
  VocabularyKeys keys;
  keys.strings["tokenizer.ggml.model"] = "llama";
  EXPECT_EQ(keys.read().status().code(), absl::StatusCode::kUnimplemented);
}

TEST(VocabularyFromGguf, LongestTokens) {
  VocabularyKeys keys;
  keys.texts[0].assign(1024, 'x');
  keys.texts[3].assign(65536, 'x');
  ASSERT_TRUE(keys.read().ok()) << keys.read().status();
  for (const int32_t added_type : {2, 3, 4}) {
    keys.types[3] = added_type;
    EXPECT_THAT(base::message_of(keys.read().status()), HasSubstr("element 3 has 65536 bytes"));
  }
}

TEST(VocabularyFromGguf, AddedTokensTogether) {
  VocabularyKeys keys;
  keys.texts.assign(4096, std::string(1024, 'x'));
  keys.types.assign(4096, 4);
  ASSERT_TRUE(keys.read().ok()) << keys.read().status();
  keys.texts.push_back("x");
  keys.types.push_back(1);
  EXPECT_TRUE(keys.read().ok());
  keys.types.back() = 3;
  EXPECT_THAT(base::message_of(keys.read().status()),
              HasSubstr("'tokenizer.ggml.tokens': the added tokens have 4194305 bytes together"));
}

}  // namespace
}  // namespace pagoda::model
