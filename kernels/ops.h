// The ops: one plain function each, over pointers, sizes, strides (in elements) and KvView. ref/ is
// their meaning in double precision, cpu/ and cuda/ are speed.
//
// The residual stream and logits are `float`. What flows between ops in the branches beside the
// stream is `void`: elements of the backend's activation type (Capabilities::activation).
//
// A row's result depends on that row's inputs and positions alone, bit for bit: on a CPU no op may
// sum in an order that depends on the number of rows, on chunk size or on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/backend.h"
#include "kernels/kv_view.h"

namespace pagoda::ops {

// out[r] = weight row ids[r], as f32.
struct Embed {
  const PackedWeight* weight = nullptr;  // [vocab, dim]
  const int32_t* ids = nullptr;          // [n_rows], each in [0, vocab)
  float* out = nullptr;                  // [n_rows, dim]: the stream
  int32_t n_rows = 0;
};

// out = x / sqrt(mean(x^2) + eps) * weight   (Zhang and Sennrich 2019, arXiv:1910.07467)
struct RmsNorm {
  const float* x = nullptr;       // [n_rows, dim]: the stream, or rows of it
  const float* weight = nullptr;  // [dim]
  void* out = nullptr;            // [n_rows, dim]; not x
  int32_t n_rows = 0;
  int32_t dim = 0;
  float eps = 0;
};

// y = x W^T + bias, or y += x W^T + bias.
struct Matmul {
  const void* x = nullptr;               // [n_rows, k]
  const PackedWeight* weight = nullptr;  // [n, k]
  const float* bias = nullptr;           // [n] or null
  void* y = nullptr;                     // [n_rows, n]
  DType y_type = DType::kF32;            // kF32: the stream or logits; else the activation type
  int32_t n_rows = 0;
  bool accumulate = false;  // only with a y of kF32
};

// out = silu(gate) * up   (Shazeer 2020, arXiv:2002.05202)
struct SiluMul {
  const void* gate_up = nullptr;  // [n_rows, 2 * dim]: gate, then up
  void* out = nullptr;            // [n_rows, dim]
  int32_t n_rows = 0;
  int32_t dim = 0;
};

// cos and sin of position * inv_freq, times `scale` (YaRN's attention factor). Once a step, for all
// layers.
struct RopeAngles {
  const int32_t* positions = nullptr;  // [n_rows]
  const float* inv_freq = nullptr;     // [rope_dim / 2]
  float* cos_sin = nullptr;            // [n_rows, rope_dim]: the cosines, then the sines
  int32_t n_rows = 0;
  int32_t rope_dim = 0;
  float scale = 1;
};

enum class RopePairs : uint8_t {
  kInterleaved,  // (0,1) (2,3) …: what GGUF's llama weights are permuted for
  kHalves,       // (0,d/2) (1,d/2+1) …
};

// Where a row's KV goes.
struct KvSlot {
  BlockId block;
  int32_t offset = 0;  // token within the block
};

// Rotates q in place (Su et al. 2021, arXiv:2104.09864) and writes k, rotated, and v into the
// pages. What is left in k's place is unspecified.
struct RopeKvWrite {
  void* qkv = nullptr;             // [n_rows, (n_heads + 2 * n_kv_heads) * head_dim]: q, k, v
  const float* cos_sin = nullptr;  // [n_rows, rope_dim]
  const KvSlot* slots = nullptr;   // [n_rows]
  const KvView* kv = nullptr;      // gives n_kv_heads and head_dim
  int32_t layer = 0;               // within the group
  int32_t n_rows = 0;
  int32_t n_heads = 0;
  int32_t rope_dim = 0;  // the first rope_dim of head_dim turn, the rest stays
  RopePairs pairs = RopePairs::kInterleaved;
};

// The rows of one sequence in a step: consecutive rows at consecutive positions.
struct AttentionSeq {
  int32_t row_begin = 0;
  int32_t n_rows = 0;
  int32_t position = 0;             // of the first row
  const BlockId* blocks = nullptr;  // [ceil((position + n_rows) / block_size)]
};

// Tells the backend the step's sequences of one layer group, the same for all its layers. Once a
// step for each group, before the layers run; a backend that needs no such plan has no such op.
struct PlanAttention {
  int32_t group = 0;  // what Attention calls it
  const KvView* kv = nullptr;
  int32_t n_heads = 0;
  int32_t window = 0;
  std::span<const AttentionSeq> seqs;  // those that each Attention of the group gets
};

// Causal grouped-query attention over paged KV; row at position p sees tokens 0 … p, or with a
// window w only p-w+1 … p. The rows' own KV has been written. Softmax runs in pieces of
// kAttentionPiece tokens at absolute borders, merged in order.
struct Attention {
  const void* q = nullptr;  // [n_rows, q_stride]: the first n_heads * head_dim of a row
  int64_t q_stride = 0;
  void* out = nullptr;  // [n_rows, n_heads * head_dim]
  const KvView* kv = nullptr;
  int32_t group = 0;  // whose sequences plan_attention has been told
  int32_t layer = 0;  // within the group
  int32_t n_heads = 0;
  float scale = 0;     // on q.k, usually 1 / sqrt(head_dim)
  int32_t window = 0;  // 0: none
  std::span<const AttentionSeq> seqs;
};
inline constexpr int32_t kAttentionPiece = 512;

// out[i] = x[rows[i]], rows of any type.
struct GatherRows {
  const void* x = nullptr;        // [*, row_bytes]
  const int32_t* rows = nullptr;  // [n_rows]
  void* out = nullptr;            // [n_rows, row_bytes]
  int32_t n_rows = 0;
  int64_t row_bytes = 0;
};

struct LogitBias {
  int32_t token = 0;
  float value = 0;  // added to the logit; -infinity bans the token
};

// A token of the prompt or the answer, for penalties.
struct TokenCount {
  int32_t token = 0;
  int32_t n_output = 0;  // how often the answer has it; 0: only the prompt does
};

// What one row's draw depends on. The lists are the state of the row's sequence, which its owner
// keeps up token by token; they are read during the call only.
struct SampleRow {
  int32_t logits_row = 0;
  float temperature = 1;  // below kGreedyTemperature: the largest logit, lowest id first
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off; the smallest set of most likely tokens whose mass reaches it
  float min_p = 0;        // 0: off; relative to the most likely token
  uint64_t seed = 0;      // the draw is a pure function of seed, choice and position
  int32_t choice = 0;
  int64_t position = 0;  // of the token that is drawn, counted from the first output token
  const int32_t* allowed = nullptr;  // [n_allowed]; all other tokens are banned
  int32_t n_allowed = 0;             // 0: all may be drawn
  const LogitBias* bias = nullptr;   // [n_bias]
  int32_t n_bias = 0;
  // Each token once that a penalty may touch, best in rising order; tokens that only the prompt has
  // matter to the repetition penalty alone. 0: no penalties, whatever their values are.
  const TokenCount* counts = nullptr;  // [n_counts]
  int32_t n_counts = 0;
  float repetition_penalty = 1;  // > 0; divides logits that are positive, multiplies the others
  float frequency_penalty = 0;   // taken off once for each time in the answer
  float presence_penalty = 0;    // taken off once if it is in the answer
  int32_t n_top = -1;         // alternatives wanted with their log probabilities; -1: none at all
  int32_t forced_token = -1;  // >= 0: not drawn; the log probability of this token is wanted
};
inline constexpr float kGreedyTemperature = 1e-5F;
inline constexpr int32_t kMaxTopLogprobs = 20;

// Log probabilities are those of the model itself: before allowed tokens, bias, penalties,
// temperature and the filters. rank is 1 for the most likely token.
struct SampleResult {
  int32_t token = 0;  // -1: nothing may be drawn; then there is no log probability
  float logprob = 0;
  int32_t rank = 0;
  int32_t n_top = 0;
  int32_t top_tokens[kMaxTopLogprobs];  // by falling probability, lowest id first
  float top_logprobs[kMaxTopLogprobs];
};

// Allowed tokens, bias, penalties (repetition, then frequency and presence; in double precision,
// rounded once), then temperature, min_p, top_k, top_p, then one draw by the inverse of the
// cumulative mass in order of token ids with a Philox4x32-10 number (Salmon et al. 2011). If a
// filter leaves a single token, that one; logits that are NaN count as -infinity. A token whose
// logit is -infinity before the temperature is never drawn: when no other is left, the token is -1.
struct Sample {
  const float* logits = nullptr;  // [*, vocab]
  int32_t vocab = 0;
  std::span<const SampleRow> rows;
  SampleResult* results = nullptr;  // [rows.size()]
};

void embed(Backend& backend, const Embed& args);
void rms_norm(Backend& backend, const RmsNorm& args);
void matmul(Backend& backend, const Matmul& args);
void silu_mul(Backend& backend, const SiluMul& args);
void rope_angles(Backend& backend, const RopeAngles& args);
void rope_kv_write(Backend& backend, const RopeKvWrite& args);
void plan_attention(Backend& backend, const PlanAttention& args);
void attention(Backend& backend, const Attention& args);
void gather_rows(Backend& backend, const GatherRows& args);
void sample(Backend& backend, const Sample& args);
// Sums x over the ranks of a tensor-parallel group; nothing to do for one rank.
void all_reduce(Backend& backend, float* x, int64_t n, int32_t world);
void all_gather(Backend& backend, const float* x, float* out, int64_t n, int32_t world);

}  // namespace pagoda::ops

namespace pagoda {

// What a backend fills in.
struct OpTable {
  void (*embed)(Backend&, const ops::Embed&) = nullptr;
  void (*rms_norm)(Backend&, const ops::RmsNorm&) = nullptr;
  void (*matmul)(Backend&, const ops::Matmul&) = nullptr;
  void (*silu_mul)(Backend&, const ops::SiluMul&) = nullptr;
  void (*rope_angles)(Backend&, const ops::RopeAngles&) = nullptr;
  void (*rope_kv_write)(Backend&, const ops::RopeKvWrite&) = nullptr;
  void (*plan_attention)(Backend&, const ops::PlanAttention&) = nullptr;  // may stay null
  void (*attention)(Backend&, const ops::Attention&) = nullptr;
  void (*gather_rows)(Backend&, const ops::GatherRows&) = nullptr;
  void (*sample)(Backend&, const ops::Sample&) = nullptr;
};

}  // namespace pagoda
