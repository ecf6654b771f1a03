// `pagoda inspect MODEL`: what a model file holds and what its users take, read from the header.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fs.h"
#include "model/config.h"
#include "server/command_line.h"
#include "server/model_facts.h"

namespace pagoda {

// How many users fit, by bytes of the KV pool and tokens of context.
struct UserTable {
  std::vector<int64_t> contexts;              // columns
  std::vector<int64_t> pool_bytes;            // rows
  std::vector<std::vector<int64_t>> n_users;  // [row][column]
};

struct InspectReport {
  std::string path;
  int64_t file_bytes = 0;
  std::string architecture;
  std::string name;
  ModelFacts facts;
  // None, and `refusal` says why, for a model that Pagoda does not run.
  std::optional<model::ModelConfig> config;
  std::string refusal;

  std::string tokenizer;  // "gpt2, smollm"
  int64_t n_tokens = 0;
  std::vector<std::string> end_tokens;  // texts
  std::string chat_template;            // empty: none

  // Zero without a configuration.
  std::string kv_dtype;
  int32_t block_size = 0;
  int64_t block_bytes = 0;
  int64_t token_bytes = 0;  // of all groups
  UserTable users;
};

// Errors of the file are one sentence. A model of another architecture is no error.
absl::StatusOr<InspectReport> inspect_model(base::FileSystem& fs, const std::string& path);

std::string inspect_text(const InspectReport& report);
std::string inspect_json(const InspectReport& report);

// Prints the report of line.options.model.
absl::Status run_inspect(const CommandLine& line, const GetEnvironment& environment);

}  // namespace pagoda
