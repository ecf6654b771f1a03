// A model that is a hash: what it answers depends on every value that it reads through the block
// tables, so a block that is stale, shared wrongly or torn changes the output.
//
// The KV of position p is mix(fold of the KV of 0 … p-1 as read from the pool, token, p, adapter),
// once for each group. A draw depends on the token counts that come with it too, so a history that
// is short of a token, or has it twice, shows as well.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_runner.h"

namespace pagoda::sim {

struct HashRunnerConfig {
  int32_t n_groups = 1;
  int32_t block_size = kPageTokens;
  int32_t n_blocks = 0;
  int32_t n_slots = 0;
  int32_t max_rows = 0;
  int32_t n_vocab = 512;
};

class HashRunner final : public model::ModelRunner {
 public:
  explicit HashRunner(HashRunnerConfig config);

  const model::KvShape& kv_shape() const override { return shape_; }
  int32_t n_vocab() const override { return config_.n_vocab; }
  int32_t n_slots() const override { return config_.n_slots; }
  int32_t max_rows() const override { return config_.max_rows; }
  void set_kv(const KvView& kv) override { shape_.page = kv; }
  void copy_block(BlockId from, BlockId to) override;
  model::Ticket forward(const model::StepInputs& inputs) override;
  model::Ticket sample(model::Ticket step, const model::SampleInputs& inputs) override;
  std::span<const ops::SampleResult> fetch(model::Ticket draws) override;

  // [n_blocks] of block_bytes(): what a tier below copies.
  uint8_t* pool_bytes() { return reinterpret_cast<uint8_t*>(pool_.data()); }
  int64_t block_bytes() const { return int64_t{config_.block_size} * int64_t{sizeof(uint64_t)}; }

  int64_t n_rows_run() const { return n_rows_run_; }

  struct SoloRequest {
    std::span<const int32_t> prompt;
    int32_t max_tokens = 0;
    int32_t min_tokens = 0;
    std::vector<int32_t> banned_ids;  // while there are fewer than min_tokens
    std::vector<int32_t> stop_ids;    // from then on
    std::vector<int32_t> allowed_ids;
    std::vector<std::vector<int32_t>> bad_words;
    float repetition_penalty = 1;
    float presence_penalty = 0;
    float frequency_penalty = 0;
    uint64_t seed = 0;
    int32_t choice = 0;
    int32_t adapter = 0;
  };
  struct SoloAnswer {
    std::vector<int32_t> tokens;
    int32_t stop_token = -1;  // what ended it, if not max_tokens
    bool is_stuck = false;    // everything was banned
  };
  // The answer without any cache, batch or state kept from token to token: what a request must get,
  // whatever happened around it.
  static SoloAnswer solo_answer(const HashRunnerConfig& config, const SoloRequest& request);

 private:
  uint64_t& value(BlockId block, int32_t offset);
  uint64_t fold_before(std::span<const BlockId> table, int32_t position);

  const HashRunnerConfig config_;
  model::KvShape shape_;
  std::vector<uint64_t> pool_;       // [n_blocks][block_size]
  std::vector<int32_t> slot_token_;  // [n_slots]
  std::vector<uint64_t> row_hash_;   // [rows of the step]
  std::vector<ops::SampleResult> results_;
  uint64_t next_ticket_ = 1;
  int64_t n_rows_run_ = 0;
};

}  // namespace pagoda::sim
