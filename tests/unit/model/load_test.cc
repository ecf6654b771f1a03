#include "model/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/ref/ref_backend.h"
#include "tests/unit/model/tiny_model.h"

namespace pagoda::model {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<LoadedModel> load(std::vector<uint8_t> bytes, Backend& backend) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", std::move(bytes));
  return load_model(fs, "x.gguf", backend, {});
}

TEST(LoadModel, GivesAllOfAModel) {
  ref::RefBackend backend;
  const auto model = load(TinyLlama().build(), backend);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->config.name, "tiny");
  EXPECT_EQ(model->tokenizer->n_vocab(), TinyLlama::kVocab);
  EXPECT_EQ(model->weights->layers.size(), static_cast<size_t>(TinyLlama::kLayers));
  EXPECT_EQ(model->digest(), model->weights->digest);
  std::vector<TokenId> ids;
  model->tokenizer->encode("ca ab<|im_end|>", SpecialTokens::kParse, ids);
  ASSERT_FALSE(ids.empty());
  EXPECT_EQ(ids.back(), 2);
}

TEST(LoadModel, RefusesAVocabularyOfAnotherSize) {
  ref::RefBackend backend;
  const TinyLlama tiny;
  GgufBuilder builder;
  tiny.add_config(builder);
  tiny.add_tensors(builder);
  builder.string("tokenizer.ggml.model", "gpt2");
  builder.strings("tokenizer.ggml.tokens", {"a", "b"}).strings("tokenizer.ggml.merges", {});
  const auto model = load(builder.build(), backend);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::message_of(model.status()),
            "x.gguf: key 'tokenizer.ggml.tokens' has 2 values, but the model's vocabulary has 288");
}

TEST(LoadModel, NamesTheFileInEveryError) {
  ref::RefBackend backend;
  base::MemoryFileSystem fs;
  EXPECT_TRUE(absl::IsNotFound(load_model(fs, "none.gguf", backend, {}).status()));
  fs.put("text.gguf", {'h', 'e', 'l', 'l', 'o'});
  EXPECT_EQ(base::message_of(load_model(fs, "text.gguf", backend, {}).status()),
            "text.gguf: is not a GGUF file: it begins with 'hell'");
  GgufBuilder builder;
  builder.string("general.architecture", "mamba");
  const auto model = load(builder.build(), backend);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(base::message_of(model.status()), HasSubstr("x.gguf: key 'general.architecture'"));
}

}  // namespace
}  // namespace pagoda::model
