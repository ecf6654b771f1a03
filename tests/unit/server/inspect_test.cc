#include "server/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "tests/unit/model/gguf_builder.h"

namespace pagoda {
namespace {

InspectReport inspect(std::vector<uint8_t> bytes) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", std::move(bytes));
  auto report = inspect_model(fs, "x.gguf");
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

int64_t part(const InspectReport& report, ModelPart part) {
  return report.facts.part_parameters[static_cast<size_t>(part)];
}

// Two layers, hidden 256, feed-forward 512, 8 heads and 2 for KV of 32, 288 tokens, context 2048.
TEST(Inspect, NumbersByHand) {
  model::TinyLlama tiny;
  tiny.type = DType::kQ8_0;
  const InspectReport report = inspect(tiny.build());
  EXPECT_EQ(part(report, ModelPart::kEmbedding), 288 * 256);
  EXPECT_EQ(part(report, ModelPart::kOutput), 288 * 256);
  EXPECT_EQ(part(report, ModelPart::kAttention), 2 * (2 * 256 * 256 + 2 * 64 * 256));
  EXPECT_EQ(part(report, ModelPart::kFeedForward), 2 * 3 * 256 * 512);
  EXPECT_EQ(part(report, ModelPart::kNorm), 5 * 256);
  EXPECT_EQ(part(report, ModelPart::kOther), 0);
  EXPECT_EQ(report.facts.n_parameters, 1'262'848);
  ASSERT_EQ(report.facts.types.size(), 2U);
  EXPECT_EQ(report.facts.types[0].type, DType::kQ8_0);
  EXPECT_EQ(report.facts.types[0].n_bytes, (1'262'848 - 1280) / 32 * 34);
  EXPECT_EQ(report.facts.types[1].type, DType::kF32);
  EXPECT_EQ(report.facts.types[1].n_bytes, 1280 * 4);
  EXPECT_EQ(report.facts.types[1].n_tensors, 5);

  // K and V, two layers, two heads of 32, two bytes each.
  EXPECT_EQ(report.token_bytes, 2 * 2 * 2 * 32 * 2);
  EXPECT_EQ(report.block_bytes, 16 * 512);
  EXPECT_EQ(report.kv_dtype, "F16");
  EXPECT_EQ(report.users.contexts, (std::vector<int64_t>{1024, 2048}));
  EXPECT_EQ(report.users.pool_bytes.front(), 1 << 30);
  EXPECT_EQ(report.users.n_users.front(), (std::vector<int64_t>{2048, 1024}));
  EXPECT_EQ(report.n_tokens, 288);
  EXPECT_EQ(report.end_tokens, (std::vector<std::string>{"<|im_end|>"}));
  EXPECT_EQ(report.chat_template, "{{ messages[0]['content'] }}");
  EXPECT_EQ(report.refusal, "");
}

TEST(Inspect, TextAndJsonSayTheSame) {
  model::TinyLlama tiny;
  tiny.tied = true;
  const InspectReport report = inspect(tiny.build());
  const std::string text = inspect_text(report);
  for (const char* words : {"tiny", "2, hidden size 256, feed-forward 512",
                            "8 heads, 2 for KV, of 32 dimensions", "512 B a token, 8.0 KiB a block",
                            "{{ messages[0]['content'] }}", "an answer ends at <|im_end|>"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("output"), std::string::npos);
  const auto json = nlohmann::json::parse(inspect_json(report));
  EXPECT_EQ(json["parameters"], 1'262'848 - 288 * 256);
  EXPECT_EQ(json["kv"]["token_bytes"], 512);
  EXPECT_EQ(json["kv"]["users"]["n_users"][0][1], 1024);
  EXPECT_EQ(json["config"]["n_kv_heads"], 2);
  EXPECT_TRUE(json["refusal"].is_null());
}

TEST(Inspect, AModelThatIsNotRunIsShownAllTheSame) {
  model::GgufBuilder file;
  file.string("general.architecture", "other\x1b[2J").string("general.name", "no\nname");
  file.tensor("x.weight", {8}, DType::kF32, std::vector<uint8_t>(32));
  const InspectReport report = inspect(file.build());
  EXPECT_FALSE(report.config.has_value());
  EXPECT_EQ(part(report, ModelPart::kOther), 8);
  const std::string text = inspect_text(report);
  EXPECT_NE(text.find("Pagoda does not run this model: "), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("no name"), std::string::npos);
  EXPECT_NE(text.find("chat template  none"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(inspect_json(report))["refusal"].is_null());
}

TEST(Inspect, WhatIsNoModelIsOneSentence) {
  base::MemoryFileSystem fs;
  fs.put("x.gguf", {'n', 'o'});
  EXPECT_NE(base::message_of(inspect_model(fs, "x.gguf").status()).find("x.gguf"),
            std::string::npos);
}

}  // namespace
}  // namespace pagoda
