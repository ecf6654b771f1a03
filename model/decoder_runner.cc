#include "model/decoder_runner.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda::model {

KvShape kv_shape_of(const ModelConfig& config, const Capabilities& capabilities,
                    int32_t block_size) {
  KvShape shape;
  shape.n_groups = static_cast<int32_t>(config.groups.size());
  for (const LayerGroup& group : config.groups) {
    shape.group_windows.push_back(group.window);
    // All blocks have equal bytes, so a short group is padded to the longest.
    shape.page.n_layers = std::max(shape.page.n_layers, static_cast<int32_t>(group.layers.size()));
  }
  shape.page.dtype = capabilities.kv_dtype;
  shape.page.page_layout = capabilities.page_layout;
  shape.page.block_size = block_size;
  shape.page.n_kv_heads = config.n_kv_heads;
  shape.page.head_dim = config.head_dim;
  return shape;
}

absl::StatusOr<std::unique_ptr<DecoderRunner>> DecoderRunner::create(
    Backend& backend, const ModelConfig& config, const Weights& weights,
    const DecoderRunnerOptions& options) {
  CHECK_GT(options.max_rows, 0);
  CHECK_GT(options.n_slots, 0);
  CHECK_GT(options.block_size, 0);
  CHECK_EQ(options.block_size % kPageTokens, 0);
  std::unique_ptr<DecoderRunner> runner(new DecoderRunner(backend, config, options));
  ASSIGN_OR_RETURN(runner->decoder_, Decoder::create(backend, config, weights, options.max_rows));
  RETURN_IF_ERROR(runner->allocate());

  runner->kv_shape_ = kv_shape_of(config, backend.capabilities(), options.block_size);
  return runner;
}

// Everything a step needs, so that a step allocates nothing.
absl::Status DecoderRunner::allocate() {
  const auto max_rows = static_cast<size_t>(options_.max_rows);
  const auto n_slots = static_cast<size_t>(options_.n_slots);
  slot_tokens_.assign(n_slots, -1);
  for (std::vector<int32_t>* list :
       {&ids_, &positions_, &wanted_rows_, &hidden_of_row_, &logits_row_}) {
    list->reserve(max_rows);
  }
  for (Buffer* buffer : {&device_ids_, &device_positions_, &device_wanted_rows_}) {
    ASSIGN_OR_RETURN(*buffer, backend_.allocate(max_rows * sizeof(int32_t)));
  }
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    slots_.emplace_back().reserve(max_rows);
    seqs_.emplace_back().reserve(max_rows);
    ASSIGN_OR_RETURN(Buffer buffer, backend_.allocate(max_rows * sizeof(ops::KvSlot)));
    device_slot_lists_.push_back(buffer.as<ops::KvSlot>());
    device_slots_.push_back(std::move(buffer));
  }
  chunk_rows_.reserve(Decoder::kMaxLogitRows);
  ASSIGN_OR_RETURN(device_chunk_rows_, backend_.allocate(Decoder::kMaxLogitRows * sizeof(int32_t)));
  chunk_draws_.reserve(max_rows + n_slots);
  results_.reserve(max_rows + n_slots);
  draws_.reserve(max_rows + n_slots);
  return absl::OkStatus();
}

void DecoderRunner::set_kv(const KvView& kv) {
  const KvView& page = kv_shape_.page;
  CHECK(kv.base != nullptr);
  CHECK(kv.dtype == page.dtype && kv.page_layout == page.page_layout);
  CHECK_EQ(kv.block_size, page.block_size);
  CHECK_EQ(kv.n_layers, page.n_layers);
  CHECK_EQ(kv.n_kv_heads, page.n_kv_heads);
  CHECK_EQ(kv.head_dim, page.head_dim);
  kv_ = kv;
  decoder_->set_kv(kv);
}

void DecoderRunner::copy_block(BlockId from, BlockId to) {
  const int64_t bytes = kv_.block_bytes();
  backend_.copy(kv_.base + to.value() * bytes, kv_.base + from.value() * bytes,
                static_cast<size_t>(bytes), backend_.stream());
}

Ticket DecoderRunner::forward(const StepInputs& inputs) {
  CHECK(kv_.base != nullptr);
  CHECK(!inputs.rows.empty());
  CHECK_LE(inputs.rows.size(), static_cast<size_t>(options_.max_rows));
  lay_out_rows(inputs.rows);
  lay_out_seqs(inputs);
  results_.clear();
  draws_.clear();

  upload(device_ids_, ids_.data(), ids_.size() * sizeof(int32_t));
  upload(device_positions_, positions_.data(), positions_.size() * sizeof(int32_t));
  upload(device_wanted_rows_, wanted_rows_.data(), wanted_rows_.size() * sizeof(int32_t));
  for (size_t g = 0; g < slots_.size(); ++g) {
    upload(device_slots_[g], slots_[g].data(), slots_[g].size() * sizeof(ops::KvSlot));
  }
  decoder_->forward({.n_rows = static_cast<int32_t>(ids_.size()),
                     .ids = device_ids_.as<int32_t>(),
                     .positions = device_positions_.as<int32_t>(),
                     .slots = device_slot_lists_,
                     .seqs = seqs_,
                     .wanted_rows = device_wanted_rows_.as<int32_t>(),
                     .n_wanted = static_cast<int32_t>(wanted_rows_.size())});
  step_ticket_ = ++last_ticket_;
  return Ticket{step_ticket_};
}

void DecoderRunner::lay_out_rows(std::span<const StepRow> rows) {
  ids_.clear();
  positions_.clear();
  wanted_rows_.clear();
  hidden_of_row_.clear();
  for (const StepRow& row : rows) {
    int32_t id = row.token;
    if (id < 0) {
      CHECK(row.slot.value() >= 0 && row.slot.value() < options_.n_slots);
      id = slot_tokens_[static_cast<size_t>(row.slot.value())];
    }
    CHECK_GE(id, 0);
    CHECK_LT(id, config_.n_vocab);
    CHECK_EQ(row.adapter.value(), 0);
    ids_.push_back(id);
    positions_.push_back(row.position);
    const bool wanted = row.want != Want::kNone;
    hidden_of_row_.push_back(wanted ? static_cast<int32_t>(wanted_rows_.size()) : -1);
    if (wanted) wanted_rows_.push_back(static_cast<int32_t>(ids_.size()) - 1);
  }
  logits_row_.assign(wanted_rows_.size(), -1);
}

// The sequences cover the rows in order, without a gap.
void DecoderRunner::lay_out_seqs(const StepInputs& inputs) {
  for (size_t g = 0; g < slots_.size(); ++g) {
    slots_[g].clear();
    seqs_[g].clear();
  }
  int32_t next_row = 0;
  for (const StepSeq& seq : inputs.seqs) {
    CHECK_EQ(seq.row_begin, next_row);
    CHECK_GT(seq.n_rows, 0);
    CHECK_LE(seq.n_rows, static_cast<int32_t>(inputs.rows.size()) - next_row);
    CHECK_EQ(seq.tables.size(), slots_.size());
    next_row += seq.n_rows;
    const int32_t end = seq.position + seq.n_rows;
    for (size_t g = 0; g < slots_.size(); ++g) {
      const std::vector<BlockId>& table = seq.tables[g];
      CHECK_GE(static_cast<int64_t>(table.size()) * kv_.block_size, end);
      for (int32_t position = seq.position; position < end; ++position) {
        const BlockId block = table[static_cast<size_t>(position / kv_.block_size)];
        CHECK(block.value() >= 0 && block.value() < kv_.n_blocks);
        slots_[g].push_back({.block = block, .offset = position % kv_.block_size});
      }
      seqs_[g].push_back({.row_begin = seq.row_begin,
                          .n_rows = seq.n_rows,
                          .position = seq.position,
                          .blocks = table.data()});
    }
    for (int32_t i = 0; i < seq.n_rows; ++i) {
      CHECK_EQ(positions_[static_cast<size_t>(seq.row_begin + i)], seq.position + i);
    }
  }
  CHECK_EQ(static_cast<size_t>(next_row), inputs.rows.size());
}

Ticket DecoderRunner::sample(Ticket step, const SampleInputs& inputs) {
  CHECK_EQ(step.id, step_ticket_);
  const size_t begin = results_.size();
  // A span that was given out earlier in the step must stay where it is.
  CHECK_LE(begin + inputs.requests.size(), results_.capacity());
  for (const SampleRequest& request : inputs.requests) {
    CHECK(request.slot.value() >= 0 && request.slot.value() < options_.n_slots);
    ops::SampleRow params = request.params;
    params.logits_row = logits_row_of(request.row);
    chunk_draws_.push_back(params);
  }
  draw_chunk();
  for (size_t i = 0; i < inputs.requests.size(); ++i) {
    const SampleRequest& request = inputs.requests[i];
    // The log probability of a known token is a question about the past, no new last token.
    if (request.params.forced_token >= 0) continue;
    slot_tokens_[static_cast<size_t>(request.slot.value())] = results_[begin + i].token;
  }
  draws_.push_back({.ticket = ++last_ticket_, .begin = begin, .n = inputs.requests.size()});
  return Ticket{last_ticket_};
}

// The row's place in the chunk of logits. A full chunk is drawn first.
int32_t DecoderRunner::logits_row_of(int32_t row) {
  CHECK(row >= 0 && static_cast<size_t>(row) < hidden_of_row_.size());
  const int32_t hidden = hidden_of_row_[static_cast<size_t>(row)];
  CHECK_GE(hidden, 0);
  int32_t& place = logits_row_[static_cast<size_t>(hidden)];
  if (place >= 0) return place;
  if (chunk_rows_.size() == Decoder::kMaxLogitRows) draw_chunk();
  place = static_cast<int32_t>(chunk_rows_.size());
  chunk_rows_.push_back(hidden);
  return place;
}

void DecoderRunner::draw_chunk() {
  if (chunk_draws_.empty()) return;
  const auto n_rows = static_cast<int32_t>(chunk_rows_.size());
  upload(device_chunk_rows_, chunk_rows_.data(), chunk_rows_.size() * sizeof(int32_t));
  const float* logits = decoder_->logits(device_chunk_rows_.as<int32_t>(), n_rows);
  const size_t begin = results_.size();
  results_.resize(begin + chunk_draws_.size());
  ops::sample(backend_, {.logits = logits,
                         .vocab = config_.n_vocab,
                         .rows = chunk_draws_,
                         .results = results_.data() + begin});
  for (const int32_t hidden : chunk_rows_) logits_row_[static_cast<size_t>(hidden)] = -1;
  chunk_rows_.clear();
  chunk_draws_.clear();
}

std::span<const ops::SampleResult> DecoderRunner::fetch(Ticket draws) {
  CHECK_GT(draws.id, fetched_ticket_);
  fetched_ticket_ = draws.id;
  const auto found = std::ranges::find(draws_, draws.id, &Draws::ticket);
  CHECK(found != draws_.end());
  return std::span(results_).subspan(found->begin, found->n);
}

void DecoderRunner::upload(const Buffer& to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  backend_.copy(to.as<void>(), from, bytes, backend_.stream());
}

}  // namespace pagoda::model
