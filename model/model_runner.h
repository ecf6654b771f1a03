// The seam between the engine and whatever runs the model: a decoder on a backend, or the
// simulator's hash model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kernels/kv_view.h"
#include "kernels/ops.h"

namespace pagoda::model {

// What a row of a step is wanted for.
enum class Want : uint8_t {
  kNone,     // only its KV
  kSample,   // the next token after it
  kLogprob,  // the log probability of the token that is known to follow
  kHidden,   // its final hidden state (embeddings)
};

// One token of one sequence.
struct StepRow {
  // The token's id, or with token < 0 the one last sampled in `slot`.
  int32_t token = 0;
  SlotId slot;
  int32_t position = 0;
  AdapterId adapter;  // 0: the model alone
  Want want = Want::kNone;
};

// Consecutive rows of one sequence.
struct StepSeq {
  int32_t row_begin = 0;
  int32_t n_rows = 0;
  int32_t position = 0;  // of the first row
  // One block table per group: [n_groups][blocks that cover positions 0 … position + n_rows - 1].
  std::span<const std::vector<BlockId>> tables;
};

// A batch, read during forward() only.
struct StepInputs {
  std::span<const StepRow> rows;
  std::span<const StepSeq> seqs;
};

// One draw. Rows are numbered as in the step's rows; each has wanted kSample or kLogprob.
struct SampleRequest {
  int32_t row = 0;
  SlotId slot;            // where the token is kept for a later step
  ops::SampleRow params;  // logits_row is filled in by the runner
};
struct SampleInputs {
  std::span<const SampleRequest> requests;
};

// Names work in flight; tickets are fetched in the order they were given.
struct Ticket {
  uint64_t id = 0;
};

// What a model's KV looks like, for whoever makes the pool.
struct KvShape {
  int32_t n_groups = 1;
  std::vector<int32_t> group_windows;  // [n_groups], 0: full attention
  KvView page;  // layers of a group, heads, head_dim, dtype, page layout; no base and no blocks
};

// Called by the engine thread alone, but for the sizes: they never change, and any thread may ask.
// forward() may return before the work is done; what the inputs point at is not read after it
// returns. KV is written to the view given at construction.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual const KvShape& kv_shape() const = 0;
  virtual int32_t n_vocab() const = 0;
  virtual int32_t n_slots() const = 0;
  virtual int32_t max_rows() const = 0;

  // The pool that tables refer to; set once before the first step.
  virtual void set_kv(const KvView& kv) = 0;
  // Copies a block of the pool onto another, before the next step reads or writes it.
  virtual void copy_block(BlockId from, BlockId to) = 0;

  virtual Ticket forward(const StepInputs& inputs) = 0;
  // Draws from the logits of `step`; grammar masks and the like are due here, not at forward. The
  // lists of a request's params are not read after it returns.
  virtual Ticket sample(Ticket step, const SampleInputs& inputs) = 0;
  // Waits for the draws, in the order of the requests. The span lives until the next forward.
  virtual std::span<const ops::SampleResult> fetch(Ticket draws) = 0;
};

}  // namespace pagoda::model
