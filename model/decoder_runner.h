// The ModelRunner of a real model: a decoder on a backend, the rows of a step laid out for it, and
// the token that each slot sampled last. The work is done when forward() and sample() return; a
// ticket only names it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/model_runner.h"
#include "model/weights.h"

namespace pagoda::model {

struct DecoderRunnerOptions {
  int32_t max_rows = 512;
  int32_t n_slots = 64;
  int32_t block_size = kPageTokens;  // a multiple of kPageTokens
};

// The blocks of a model's KV, which have no memory yet.
KvShape kv_shape_of(const ModelConfig& config, const Capabilities& capabilities,
                    int32_t block_size);

class DecoderRunner final : public ModelRunner {
 public:
  // Takes all memory of a step here: kResourceExhausted when there is none. Config, weights and
  // backend must outlive the runner.
  static absl::StatusOr<std::unique_ptr<DecoderRunner>> create(Backend& backend,
                                                               const ModelConfig& config,
                                                               const Weights& weights,
                                                               const DecoderRunnerOptions& options);

  const KvShape& kv_shape() const override { return kv_shape_; }
  int32_t n_vocab() const override { return config_.n_vocab; }
  int32_t n_slots() const override { return options_.n_slots; }
  int32_t max_rows() const override { return options_.max_rows; }
  void set_kv(const KvView& kv) override;
  void copy_block(BlockId from, BlockId to) override;

  Ticket forward(const StepInputs& inputs) override;
  // At most max_rows + n_slots draws of one step; several may be of one row.
  Ticket sample(Ticket step, const SampleInputs& inputs) override;
  std::span<const ops::SampleResult> fetch(Ticket draws) override;

 private:
  struct Draws {
    uint64_t ticket = 0;
    size_t begin = 0;  // in results_
    size_t n = 0;
  };

  DecoderRunner(Backend& backend, const ModelConfig& config, const DecoderRunnerOptions& options)
      : backend_(backend), config_(config), options_(options) {}
  absl::Status allocate();

  void lay_out_rows(std::span<const StepRow> rows);
  void lay_out_seqs(const StepInputs& inputs);
  int32_t logits_row_of(int32_t row);
  void draw_chunk();
  void upload(const Buffer& to, const void* from, size_t bytes);

  Backend& backend_;
  const ModelConfig& config_;
  const DecoderRunnerOptions options_;
  KvShape kv_shape_;
  KvView kv_;
  std::unique_ptr<Decoder> decoder_;
  uint64_t last_ticket_ = 0;
  uint64_t step_ticket_ = 0;          // of the last forward
  uint64_t fetched_ticket_ = 0;       // the newest that was fetched
  std::vector<int32_t> slot_tokens_;  // [n_slots], -1: none yet

  // The step, on the host and in backend memory.
  std::vector<int32_t> ids_;                          // [n_rows]
  std::vector<int32_t> positions_;                    // [n_rows]
  std::vector<int32_t> wanted_rows_;                  // [n_wanted]
  std::vector<int32_t> hidden_of_row_;                // [n_rows], -1: not wanted
  std::vector<std::vector<ops::KvSlot>> slots_;       // [n_groups][n_rows]
  std::vector<std::vector<ops::AttentionSeq>> seqs_;  // [n_groups][n_seqs]
  Buffer device_ids_;
  Buffer device_positions_;
  Buffer device_wanted_rows_;
  std::vector<Buffer> device_slots_;                   // [n_groups]
  std::vector<const ops::KvSlot*> device_slot_lists_;  // [n_groups]

  // Draws: rows of hidden states are turned into logits in chunks.
  std::vector<int32_t> chunk_rows_;  // among the wanted rows
  std::vector<int32_t> logits_row_;  // [n_wanted], -1: not in this chunk
  std::vector<ops::SampleRow> chunk_draws_;
  Buffer device_chunk_rows_;
  std::vector<ops::SampleResult> results_;  // of all draws of the step
  std::vector<Draws> draws_;                // of the step
};

}  // namespace pagoda::model
