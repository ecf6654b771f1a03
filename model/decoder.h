// The llama decoder (Touvron et al. 2023, arXiv:2302.13971) over a backend's ops: embeddings,
// layers of attention and feed-forward with a residual around each, a final norm, the output
// matrix. One thread (the engine's) calls it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/kv_view.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/weights.h"

namespace pagoda::model {

// The rows of a step, in backend memory; the sequences stay the caller's until forward() returns.
struct DecoderBatch {
  int32_t n_rows = 0;                  // 1 … max_rows
  const int32_t* ids = nullptr;        // [n_rows]
  const int32_t* positions = nullptr;  // [n_rows]
  // One for each layer group: where the rows' KV goes ([n_rows]) and the sequences.
  std::span<const ops::KvSlot* const> slots;
  std::span<const std::vector<ops::AttentionSeq>> seqs;
  const int32_t* wanted_rows = nullptr;  // [n_wanted]: rows whose final hidden state is kept
  int32_t n_wanted = 0;
};

class Decoder {
 public:
  // Rows that logits() takes at once.
  static constexpr int32_t kMaxLogitRows = 64;

  // All scratch memory is taken here: kResourceExhausted when there is none. Config, weights and
  // backend must outlive the decoder.
  static absl::StatusOr<std::unique_ptr<Decoder>> create(Backend& backend,
                                                         const ModelConfig& config,
                                                         const Weights& weights, int32_t max_rows);

  // The pool that slots and block tables refer to; set before the first forward().
  void set_kv(const KvView& kv) { kv_ = kv; }

  // Writes the rows' KV and keeps the final hidden states of the wanted rows.
  void forward(const DecoderBatch& batch);
  // Logits of some of the wanted rows of the last forward(): [n_rows, n_vocab], until the next
  // call. rows is [n_rows] in backend memory and counts among the wanted; n_rows is at most
  // kMaxLogitRows.
  const float* logits(const int32_t* rows, int32_t n_rows);

 private:
  Decoder(Backend& backend, const ModelConfig& config, const Weights& weights)
      : backend_(backend),
        config_(config),
        weights_(weights),
        activation_(backend.capabilities().activation) {}
  absl::Status allocate(int32_t max_rows);

  void attention_block(int32_t layer, const DecoderBatch& batch);
  void feed_forward_block(int32_t layer, int32_t n_rows);
  void final_norm(const DecoderBatch& batch);
  void rms_norm(const Buffer& x, const Buffer& weight, const Buffer& out, int32_t n_rows);
  void matmul(const Buffer& x, const Linear& linear, const Buffer& y, int32_t n_rows);
  // x += what the linear map makes of y, summed over the ranks.
  void add_to_residual(const Buffer& y, const Linear& linear, int32_t n_rows);

  // Where a layer's KV is: its group and its index within it.
  struct LayerPlace {
    size_t group = 0;
    int32_t index = 0;
  };

  Backend& backend_;
  const ModelConfig& config_;
  const Weights& weights_;
  const DType activation_;
  KvView kv_;
  std::vector<LayerPlace> places_;  // [n_layers]
  float rope_scale_ = 1;
  float attention_scale_ = 1;

  // f32.
  Buffer inv_freq_;  // [rope_dim / 2]
  Buffer cos_sin_;   // [max_rows, rope_dim]
  Buffer x_;         // [max_rows, hidden_dim]: the residual stream
  Buffer gathered_;  // [max_rows, hidden_dim]: wanted rows of it
  Buffer logits_;    // [kMaxLogitRows, n_vocab]
  // Of the backend's activation type.
  Buffer normed_;     // [max_rows, hidden_dim]
  Buffer qkv_;        // [max_rows, (n_heads + 2 * n_kv_heads) * head_dim]
  Buffer attended_;   // [max_rows, n_heads * head_dim]
  Buffer gate_up_;    // [max_rows, 2 * ffn_dim]
  Buffer activated_;  // [max_rows, ffn_dim]
  Buffer hidden_;     // [max_rows, hidden_dim]: of wanted rows, after the final norm
  Buffer logit_x_;    // [kMaxLogitRows, hidden_dim]
};

}  // namespace pagoda::model
