// What `pagoda serve` says when it is ready.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "server/model_facts.h"

namespace pagoda {

struct Summary {
  std::string served_name;  // the first name that requests may use
  model::ModelConfig config;
  ModelFacts facts;
  std::string device;
  std::string kernel_set;
  int32_t n_threads = 1;
  int64_t weight_bytes = 0;  // as packed, in memory
  int64_t pool_bytes = 0;
  int64_t block_bytes = 0;
  int32_t block_size = 16;
  int32_t n_groups = 1;
  int32_t max_model_len = 0;
  std::string context_note;  // why max_model_len is lower than asked for; empty: it is not
  bool prefix_caching = true;
  int64_t kv_host_bytes = 0;  // 0: no host tier
  std::string kv_ssd_path;    // empty: no SSD tier
  int64_t kv_ssd_bytes = 0;
  std::string kv_ssd_write;
  int32_t max_num_seqs = 0;
  int32_t max_queue = 0;
  std::string host;
  uint16_t port = 0;
};

// A line, but that the command to try at the end has two.
struct SummaryItem {
  std::string_view name;
  std::string text;
};
std::vector<SummaryItem> summary_items(const Summary& summary);

// The items one below the other, for people.
std::string summary_block(const Summary& summary);

// Answers of so many tokens of context whose KV fits into n_blocks at the same time.
int64_t users_of(int64_t n_blocks, int64_t context_len, int32_t block_size, int32_t n_groups);

}  // namespace pagoda
