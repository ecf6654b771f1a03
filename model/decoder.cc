#include "model/decoder.h"

#include <cmath>

#include "base/check.h"

namespace pagoda::model {
namespace {

// This rank among those that share the model's matrices.
constexpr int32_t kRank = 0;
constexpr int32_t kWorld = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::create(Backend& backend,
                                                         const ModelConfig& config,
                                                         const Weights& weights, int32_t max_rows) {
  CHECK_GT(max_rows, 0);
  std::unique_ptr<Decoder> decoder(new Decoder(backend, config, weights));
  RETURN_IF_ERROR(decoder->allocate(max_rows));
  decoder->places_.resize(static_cast<size_t>(config.n_layers));
  for (size_t g = 0; g < config.groups.size(); ++g) {
    int32_t index = 0;
    for (const int32_t layer : config.groups[g].layers) {
      decoder->places_[static_cast<size_t>(layer)] = {.group = g, .index = index++};
    }
  }
  decoder->rope_scale_ = rope_magnitude(config.rope);
  decoder->attention_scale_ = 1.0F / std::sqrt(static_cast<float>(config.head_dim));
  return decoder;
}

absl::Status Decoder::allocate(int32_t max_rows) {
  const int64_t q_dim = int64_t{config_.n_heads} * config_.head_dim;
  const int64_t kv_dim = int64_t{config_.n_kv_heads} * config_.head_dim;
  struct Need {
    Buffer* buffer;
    DType type;
    int64_t n_rows;
    int64_t width;
  };
  const Need needs[] = {
      {&inv_freq_, DType::kF32, 1, config_.rope.dim / 2},
      {&cos_sin_, DType::kF32, max_rows, config_.rope.dim},
      {&x_, DType::kF32, max_rows, config_.hidden_dim},
      {&gathered_, DType::kF32, max_rows, config_.hidden_dim},
      {&logits_, DType::kF32, kMaxLogitRows, config_.n_vocab},
      {&normed_, activation_, max_rows, config_.hidden_dim},
      {&qkv_, activation_, max_rows, q_dim + 2 * kv_dim},
      {&attended_, activation_, max_rows, q_dim},
      {&gate_up_, activation_, max_rows, 2 * int64_t{config_.ffn_dim}},
      {&activated_, activation_, max_rows, config_.ffn_dim},
      {&hidden_, activation_, max_rows, config_.hidden_dim},
      {&logit_x_, activation_, kMaxLogitRows, config_.hidden_dim},
  };
  for (const Need& need : needs) {
    const int64_t bytes = need.n_rows * dtype_row_bytes(need.type, need.width);
    ASSIGN_OR_RETURN(*need.buffer, backend_.allocate(static_cast<size_t>(bytes)));
  }
  const std::vector<float> inv_freq = rope_inv_freq(config_.rope);
  const Stream stream = backend_.stream();
  backend_.copy(inv_freq_.as<float>(), inv_freq.data(), inv_freq.size() * sizeof(float), stream);
  backend_.wait(backend_.record(stream));
  return absl::OkStatus();
}

void Decoder::forward(const DecoderBatch& batch) {
  ops::embed(backend_, {.weight = weights_.embed.get(),
                        .ids = batch.ids,
                        .out = x_.as<float>(),
                        .n_rows = batch.n_rows});
  ops::rope_angles(backend_, {.positions = batch.positions,
                              .inv_freq = inv_freq_.as<float>(),
                              .cos_sin = cos_sin_.as<float>(),
                              .n_rows = batch.n_rows,
                              .rope_dim = config_.rope.dim,
                              .scale = rope_scale_});
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    ops::plan_attention(backend_, {.group = static_cast<int32_t>(g),
                                   .kv = &kv_,
                                   .n_heads = config_.n_heads,
                                   .window = config_.groups[g].window,
                                   .seqs = batch.seqs[g]});
  }
  for (int32_t layer = 0; layer < config_.n_layers; ++layer) {
    attention_block(layer, batch);
    feed_forward_block(layer, batch.n_rows);
  }
  if (batch.n_wanted > 0) final_norm(batch);
}

void Decoder::attention_block(int32_t layer, const DecoderBatch& batch) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  const LayerPlace& place = places_[static_cast<size_t>(layer)];
  rms_norm(x_, weights.attn_norm, normed_, batch.n_rows);
  matmul(normed_, weights.qkv, qkv_, batch.n_rows);
  ops::rope_kv_write(backend_, {.qkv = qkv_.as<void>(),
                                .cos_sin = cos_sin_.as<float>(),
                                .slots = batch.slots[place.group],
                                .kv = &kv_,
                                .layer = place.index,
                                .n_rows = batch.n_rows,
                                .n_heads = config_.n_heads,
                                .rope_dim = config_.rope.dim,
                                .pairs = config_.rope.pairs});
  ops::attention(backend_, {.q = qkv_.as<void>(),
                            .q_stride = weights.qkv.weight->n(),
                            .out = attended_.as<void>(),
                            .kv = &kv_,
                            .group = static_cast<int32_t>(place.group),
                            .layer = place.index,
                            .n_heads = config_.n_heads,
                            .scale = attention_scale_,
                            .window = config_.groups[place.group].window,
                            .seqs = batch.seqs[place.group]});
  add_to_residual(attended_, weights.attn_out, batch.n_rows);
}

void Decoder::feed_forward_block(int32_t layer, int32_t n_rows) {
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  rms_norm(x_, weights.ffn_norm, normed_, n_rows);
  matmul(normed_, weights.gate_up, gate_up_, n_rows);
  ops::silu_mul(backend_, {.gate_up = gate_up_.as<void>(),
                           .out = activated_.as<void>(),
                           .n_rows = n_rows,
                           .dim = config_.ffn_dim});
  add_to_residual(activated_, weights.down, n_rows);
}

// Only of the rows that are wanted: a chunk of a prompt wants none or its last.
void Decoder::final_norm(const DecoderBatch& batch) {
  ops::gather_rows(backend_, {.x = x_.as<void>(),
                              .rows = batch.wanted_rows,
                              .out = gathered_.as<void>(),
                              .n_rows = batch.n_wanted,
                              .row_bytes = dtype_row_bytes(DType::kF32, config_.hidden_dim)});
  rms_norm(gathered_, weights_.output_norm, hidden_, batch.n_wanted);
}

const float* Decoder::logits(const int32_t* rows, int32_t n_rows) {
  CHECK_LE(n_rows, kMaxLogitRows);
  ops::gather_rows(backend_, {.x = hidden_.as<void>(),
                              .rows = rows,
                              .out = logit_x_.as<void>(),
                              .n_rows = n_rows,
                              .row_bytes = dtype_row_bytes(activation_, config_.hidden_dim)});
  ops::matmul(backend_, {.x = logit_x_.as<void>(),
                         .weight = weights_.output(),
                         .bias = nullptr,
                         .y = logits_.as<void>(),
                         .y_type = DType::kF32,
                         .n_rows = n_rows,
                         .accumulate = false});
  return logits_.as<float>();
}

void Decoder::rms_norm(const Buffer& x, const Buffer& weight, const Buffer& out, int32_t n_rows) {
  ops::rms_norm(backend_, {.x = x.as<float>(),
                           .weight = weight.as<float>(),
                           .out = out.as<void>(),
                           .n_rows = n_rows,
                           .dim = config_.hidden_dim,
                           .eps = config_.norm_eps});
}

void Decoder::matmul(const Buffer& x, const Linear& linear, const Buffer& y, int32_t n_rows) {
  ops::matmul(backend_, {.x = x.as<void>(),
                         .weight = linear.weight.get(),
                         .bias = linear.bias_or_null(),
                         .y = y.as<void>(),
                         .y_type = activation_,
                         .n_rows = n_rows,
                         .accumulate = false});
}

void Decoder::add_to_residual(const Buffer& y, const Linear& linear, int32_t n_rows) {
  // The residual and the bias enter the sum over the ranks once.
  ops::matmul(backend_, {.x = y.as<void>(),
                         .weight = linear.weight.get(),
                         .bias = kRank == 0 ? linear.bias_or_null() : nullptr,
                         .y = x_.as<void>(),
                         .y_type = DType::kF32,
                         .n_rows = n_rows,
                         .accumulate = kRank == 0});
  ops::all_reduce(backend_, x_.as<float>(), int64_t{n_rows} * config_.hidden_dim, kWorld);
}

}  // namespace pagoda::model
