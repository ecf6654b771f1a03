// A model whose logits depend on the position alone, so that neither caching nor recomputation can
// change them: what an answer is then shows the sampler's side. Draws by the real op.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "model/model_runner.h"

namespace pagoda::engine {

class PositionRunner final : public model::ModelRunner {
 public:
  struct DrawnAt {
    uint64_t seed;
    int32_t choice;
    int64_t position;
  };

  PositionRunner(int32_t n_slots, int32_t max_rows) : n_slots_(n_slots), max_rows_(max_rows) {
    auto backend = CpuBackend::create({.n_threads = 1});
    CHECK(backend.ok());
    backend_ = *std::move(backend);
  }

  const model::KvShape& kv_shape() const override { return shape_; }
  int32_t n_vocab() const override { return kVocab; }
  int32_t n_slots() const override { return n_slots_; }
  int32_t max_rows() const override { return max_rows_; }
  void set_kv(const KvView&) override {}
  void copy_block(BlockId, BlockId) override {}

  model::Ticket forward(const model::StepInputs& inputs) override {
    logits_.clear();
    for (const model::StepRow& row : inputs.rows) {
      const std::vector<float> logits = logits_at(row.position);
      logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    return {1};
  }
  model::Ticket sample(model::Ticket, const model::SampleInputs& inputs) override {
    std::vector<ops::SampleRow> rows;
    for (const model::SampleRequest& request : inputs.requests) {
      rows.push_back(request.params);
      rows.back().logits_row = request.row;
      if (request.params.forced_token >= 0) continue;
      draws.push_back({request.params.seed, request.params.choice, request.params.position});
    }
    results_.resize(rows.size());
    ops::sample(
        *backend_,
        {.logits = logits_.data(), .vocab = kVocab, .rows = rows, .results = results_.data()});
    return {2};
  }
  std::span<const ops::SampleResult> fetch(model::Ticket) override { return results_; }

  static std::vector<float> logits_at(int32_t position) {
    std::mt19937 random(static_cast<uint32_t>(position));
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }

  static constexpr int32_t kVocab = 64;
  std::vector<DrawnAt> draws;  // all that were asked for

 private:
  const int32_t n_slots_;
  const int32_t max_rows_;
  model::KvShape shape_;
  std::unique_ptr<CpuBackend> backend_;
  std::vector<float> logits_;  // [rows of the step][kVocab]
  std::vector<ops::SampleResult> results_;
};

}  // namespace pagoda::engine
