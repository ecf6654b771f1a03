// A model with everything that runs it: backend, weights, KV pool, cache and engine.
#pragma once

#include <prometheus/registry.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fs.h"
#include "cache/kv_cache.h"
#include "cache/trace_writer.h"
#include "kernels/backend.h"
#include "model/load.h"
#include "model/model_runner.h"
#include "server/config.h"
#include "server/engine/engine.h"
#include "server/engine/metrics.h"
#include "server/kv_tier_stack.h"
#include "server/model_facts.h"

namespace pagoda {

// Made and destroyed by one thread; the engine's own rules hold for its use. No thread runs the
// engine yet.
class ModelStack {
 public:
  // Borrows all but the options. Errors are one sentence for the user.
  static absl::StatusOr<std::unique_ptr<ModelStack>> create(const ServeOptions& options,
                                                            const std::string& path,
                                                            base::FileSystem& fs,
                                                            const base::Clock& clock,
                                                            prometheus::Registry& registry);
  ~ModelStack();

  // Touches the pool's pages on a thread of its own that ends by itself, so that no request pays
  // for them.
  void touch_pool();

  engine::Engine& engine() { return *engine_; }
  engine::Metrics& metrics() { return *metrics_; }
  const model::Tokenizer& tokenizer() const { return *model_.tokenizer; }
  const model::ModelConfig& config() const { return model_.config; }
  const ModelFacts& facts() const { return facts_; }
  int64_t weight_bytes() const { return weight_bytes_; }  // in memory
  const Capabilities& capabilities() const { return backend_->capabilities(); }
  int32_t max_model_len() const { return max_model_len_; }
  int32_t block_size() const { return kv_.block_size; }
  int64_t pool_bytes() const { return kv_.pool_bytes(); }
  int64_t block_bytes() const { return kv_.block_bytes(); }
  const cache::TraceWriter* trace() const { return trace_.get(); }  // null: none is written
  const KvTierStack* tiers() const { return tiers_.get(); }         // null: the device alone
  int32_t n_groups() const { return runner_->kv_shape().n_groups; }
  // Tokens of KV that the pool holds.
  int64_t pool_tokens() const;
  // Empty, or why the context is shorter than the model's or the flag's.
  const std::string& context_note() const { return context_note_; }

 private:
  ModelStack() = default;
  absl::Status load(const ServeOptions& options, const std::string& path, base::FileSystem& fs,
                    const base::Clock& clock);
  absl::Status make_pool(const ServeOptions& options);
  absl::StatusOr<std::unique_ptr<cache::TraceWriter>> open_trace(const std::string& path,
                                                                 const base::Clock& clock) const;
  absl::Status make_engine(const ServeOptions& options, const base::Clock& clock,
                           prometheus::Registry& registry);
  absl::StatusOr<int32_t> wanted_model_len(const ServeOptions& options) const;

  // Destroyed in the opposite order, which is the order of who uses whom.
  std::unique_ptr<Backend> backend_;
  ModelFacts facts_;
  model::LoadedModel model_;
  int64_t weight_bytes_ = 0;
  std::unique_ptr<model::ModelRunner> runner_;
  Buffer pool_;
  KvView kv_;
  std::unique_ptr<KvTierStack> tiers_;
  std::unique_ptr<cache::KvCache> cache_;
  std::unique_ptr<engine::Metrics> metrics_;
  std::unique_ptr<cache::TraceWriter> trace_;  // null: none is written
  std::unique_ptr<engine::Engine> engine_;

  int32_t max_model_len_ = 0;
  std::string context_note_;
  std::atomic<bool> stop_touching_{false};
  std::thread toucher_;
};

}  // namespace pagoda
