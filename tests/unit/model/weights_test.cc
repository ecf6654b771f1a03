#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/ref/ref_backend.h"
#include "tests/unit/model/tiny_model.h"

namespace pagoda::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A tiny llama whose tensors the test writes itself.
class WeightsTest : public ::testing::Test {
 protected:
  absl::StatusOr<Weights> load(std::vector<uint8_t> bytes, const LoadProgress& progress = {}) {
    file_ = open_gguf(std::move(bytes));
    auto config = config_from_gguf(*file_);
    if (!config.ok()) return config.status();
    return load_weights(*file_, *config, backend_, progress);
  }

  // The model with an unwanted or a wrong tensor beside, or instead of, its own.
  absl::StatusOr<Weights> load_with(const std::string& name, const std::vector<int64_t>& dims,
                                    DType type, bool instead) {
    GgufBuilder builder;
    tiny_.add_config(builder);
    const auto whole = open_gguf(tiny_.build());
    for (const GgufTensor& tensor : whole->tensors()) {
      if (instead && tensor.name == name) continue;
      builder.tensor(tensor.name, tensor.dims, tensor.type,
                     {tensor.data.begin(), tensor.data.end()});
    }
    if (!dims.empty()) {
      int64_t n = 1;
      for (const int64_t dim : dims) n *= dim;
      builder.tensor(name, dims, type,
                     std::vector<uint8_t>(static_cast<size_t>(dtype_row_bytes(type, n))));
    }
    return load(builder.build());
  }

  TinyLlama tiny_;
  ref::RefBackend backend_;
  std::unique_ptr<GgufFile> file_;
};

TEST_F(WeightsTest, LoadsEveryType) {
  for (const DType type : kAllTypes) {
    tiny_.type = type;
    const auto weights = load(tiny_.build());
    ASSERT_TRUE(weights.ok()) << weights.status();
    ASSERT_EQ(weights->layers.size(), 2U);
    EXPECT_EQ(weights->embed->n(), TinyLlama::kVocab);
    EXPECT_EQ(weights->embed->k(), TinyLlama::kHidden);
    const LayerWeights& layer = weights->layers[1];
    EXPECT_EQ(layer.qkv.weight->n(), (8 + 2 * 2) * 32);
    EXPECT_EQ(layer.qkv.bias_or_null(), nullptr);
    EXPECT_EQ(layer.attn_out.weight->k(), 8 * 32);
    EXPECT_EQ(layer.gate_up.weight->n(), 2 * TinyLlama::kFfn);
    EXPECT_EQ(layer.down.weight->k(), TinyLlama::kFfn);
    EXPECT_NE(weights->output(), weights->embed.get());
  }
}

TEST_F(WeightsTest, TiedOutputIsTheEmbedding) {
  tiny_.tied = true;
  const auto weights = load(tiny_.build());
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->output(), weights->embed.get());
}

TEST_F(WeightsTest, StacksBiasesWithZerosForThoseMissing) {
  tiny_.biases = true;
  const auto weights = load(tiny_.build());
  ASSERT_TRUE(weights.ok()) << weights.status();
  const float* bias = weights->layers[0].qkv.bias_or_null();
  ASSERT_NE(bias, nullptr);
  const auto value_at = [&](const char* name, size_t i) {
    float value = 0;
    std::memcpy(&value, file_->find_tensor(name)->data.data() + i * 4, 4);
    return value;
  };
  EXPECT_EQ(bias[0], value_at("blk.0.attn_q.bias", 0));
  EXPECT_EQ(bias[255], value_at("blk.0.attn_q.bias", 255));
  for (int i = 256; i < 320; ++i) EXPECT_EQ(bias[i], 0);
  EXPECT_EQ(bias[320], value_at("blk.0.attn_v.bias", 0));
}

TEST_F(WeightsTest, NormsOfAnyFloatType) {
  const std::string name = "output_norm.weight";
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const auto weights = load_with(name, {TinyLlama::kHidden}, type, true);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->output_norm.as<float>()[0], 0);
  }
  EXPECT_EQ(base::message_of(load_with(name, {TinyLlama::kHidden}, DType::kQ8_0, true).status()),
            "x.gguf: tensor 'output_norm.weight' has type Q8_0; it must be F32, F16 or BF16");
}

TEST_F(WeightsTest, RefusesWrongShapes) {
  struct Case {
    const char* name;
    std::vector<int64_t> dims;
    const char* message;
  };
  const Case cases[] = {
      {"blk.0.attn_q.weight", {}, "tensor 'blk.0.attn_q.weight' is missing"},
      {"token_embd.weight", {}, "tensor 'token_embd.weight' is missing"},
      {"output_norm.weight", {}, "tensor 'output_norm.weight' is missing"},
      {"blk.1.ffn_down.weight",
       {256, 512},
       "tensor 'blk.1.ffn_down.weight' has shape [256, 512]; it must be [512, 256]"},
      {"blk.1.attn_k.weight", {256, 65}, "has shape [256, 65]; it must be [256, 64]"},
      {"token_embd.weight", {256, 287}, "has shape [256, 287]; it must be [256, 288]"},
      {"token_embd.weight", {256, 288, 1}, "has shape [256, 288, 1]; it must be [256, 288]"},
      {"blk.0.ffn_norm.weight", {1, 256}, "has shape [1, 256]; it must be [256]"},
  };
  for (const Case& test : cases) {
    const auto weights = load_with(test.name, test.dims, DType::kF32, true);
    EXPECT_EQ(weights.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(base::message_of(weights.status()), StartsWith("x.gguf: tensor '"));
    EXPECT_THAT(base::message_of(weights.status()), HasSubstr(test.message));
  }
}

// A tensor that the decoder does not know would change the model's answers.
TEST_F(WeightsTest, RefusesTensorsItDoesNotKnow) {
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.2.attn_q.weight", "lora_a"}) {
    EXPECT_EQ(base::message_of(load_with(name, {32}, DType::kF32, false).status()),
              std::string("x.gguf: tensor '") + name + "' is no part of a 'llama' model");
  }
}

TEST_F(WeightsTest, ReportsProgress) {
  int64_t last = 0;
  int64_t total = 0;
  const auto weights = load(tiny_.build(), [&](int64_t done, int64_t of) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, of);
    last = done;
    total = of;
  });
  ASSERT_TRUE(weights.ok());
  EXPECT_GT(total, 2 << 20);
  EXPECT_EQ(last, total);
}

TEST_F(WeightsTest, DigestIsOfContentNotOfOrder) {
  const base::Digest256 digest = load(tiny_.build())->digest;
  EXPECT_EQ(load(tiny_.build())->digest, digest);

  // The same tensors, written in another order.
  const auto whole = open_gguf(tiny_.build());
  GgufBuilder backwards;
  tiny_.add_config(backwards);
  for (size_t i = whole->tensors().size(); i-- > 0;) {
    const GgufTensor& tensor = whole->tensors()[i];
    backwards.tensor(tensor.name, tensor.dims, tensor.type,
                     {tensor.data.begin(), tensor.data.end()});
  }
  EXPECT_EQ(load(backwards.build())->digest, digest);

  std::vector<uint8_t> bytes = tiny_.build();
  bytes.back() ^= 1;
  EXPECT_NE(load(std::move(bytes))->digest, digest);
  tiny_.rope_scaling = "yarn";
  EXPECT_NE(load(tiny_.build())->digest, digest);
}

}  // namespace
}  // namespace pagoda::model
