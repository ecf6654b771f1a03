#include "server/model_stack.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cache/identity.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/decoder_runner.h"
#include "model/gguf.h"
#include "server/client/units.h"
#include "server/load_progress.h"
#include "server/sizing.h"

namespace pagoda {
namespace {

constexpr size_t kTouchBytes = 8 << 20;

// As they lie in memory, without what rounding up takes.
int64_t bytes_of(const model::Weights& weights) {
  const auto linear = [](const model::Linear& one) {
    return one.weight->bytes() + static_cast<int64_t>(one.bias.bytes());
  };
  int64_t bytes = weights.embed->bytes() + static_cast<int64_t>(weights.output_norm.bytes());
  if (weights.untied_output != nullptr) bytes += weights.untied_output->bytes();
  for (const model::LayerWeights& layer : weights.layers) {
    bytes += static_cast<int64_t>(layer.attn_norm.bytes() + layer.ffn_norm.bytes());
    bytes +=
        linear(layer.qkv) + linear(layer.attn_out) + linear(layer.gate_up) + linear(layer.down);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelStack>> ModelStack::create(const ServeOptions& options,
                                                               const std::string& path,
                                                               base::FileSystem& fs,
                                                               const base::Clock& clock,
                                                               prometheus::Registry& registry) {
  std::unique_ptr<ModelStack> stack(new ModelStack());
  RETURN_IF_ERROR(stack->load(options, path, fs, clock));
  RETURN_IF_ERROR(stack->make_pool(options));
  RETURN_IF_ERROR(stack->make_engine(options, clock, registry));
  return stack;
}

ModelStack::~ModelStack() {
  if (tiers_ != nullptr) tiers_->set_engine(nullptr);
  stop_touching_.store(true);
  if (toucher_.joinable()) toucher_.join();
}

absl::Status ModelStack::load(const ServeOptions& options, const std::string& path,
                              base::FileSystem& fs, const base::Clock& clock) {
  CpuOptions cpu;
  cpu.n_threads =
      options.threads > 0 ? options.threads : usable_processors(read_system_file, affinity_count());
  if (options.kernels == "avx512") {
    cpu.isa = "avx512-vnni";
  } else if (options.kernels != "auto") {
    cpu.isa = options.kernels;
  }
  ASSIGN_OR_RETURN(backend_, CpuBackend::create(cpu));
  // The header alone; load_model reads it again with the rest.
  ASSIGN_OR_RETURN(const std::unique_ptr<model::GgufFile> file, model::GgufFile::open(fs, path));
  facts_ = facts_of(*file);
  ASSIGN_OR_RETURN(model_, model::load_model(fs, path, *backend_,
                                             load_progress(clock, ::isatty(STDERR_FILENO) == 1)));
  weight_bytes_ = bytes_of(*model_.weights);
  model::DecoderRunnerOptions runner;
  runner.max_rows = options.max_num_batched_tokens;
  runner.n_slots = options.max_num_seqs;
  runner.block_size = options.block_size;
  ASSIGN_OR_RETURN(runner_,
                   model::DecoderRunner::create(*backend_, model_.config, *model_.weights, runner));
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ModelStack::wanted_model_len(const ServeOptions& options) const {
  const int32_t context = model_.config.context_len;
  if (options.max_model_len > context) {
    return base::invalid_argument("--max-model-len is {}, but the model's context has {} tokens",
                                  options.max_model_len, context);
  }
  return options.max_model_len > 0 ? options.max_model_len : context;
}

absl::Status ModelStack::make_pool(const ServeOptions& options) {
  ASSIGN_OR_RETURN(max_model_len_, wanted_model_len(options));
  const model::KvShape& shape = runner_->kv_shape();
  kv_ = shape.page;
  kv_.block_size = options.block_size;
  const int64_t available = available_memory(read_system_file);
  const int64_t n_blocks = pool_blocks({.flag_bytes = options.kv_cache_memory_bytes,
                                        .available_bytes = available,
                                        .block_bytes = kv_.block_bytes(),
                                        .block_tokens = kv_.block_size,
                                        .n_groups = shape.n_groups,
                                        .max_model_len = max_model_len_,
                                        .max_num_seqs = options.max_num_seqs});
  if (n_blocks < shape.n_groups) {
    return base::invalid_argument(
        "the KV pool would not hold a single block of {}; give it more with "
        "--kv-cache-memory-bytes ({} of memory are free)",
        bytes_text(kv_.block_bytes() * shape.n_groups),
        available < 0 ? "an unknown amount" : bytes_text(available));
  }
  kv_.n_blocks = static_cast<int32_t>(n_blocks);
  if (available >= 0 && kv_.pool_bytes() > available) {
    spdlog::warn("the KV pool has {}, but only {} of memory are free", bytes_text(kv_.pool_bytes()),
                 bytes_text(available));
  }
  ASSIGN_OR_RETURN(pool_, backend_->allocate(static_cast<size_t>(kv_.pool_bytes())));
  kv_.base = pool_.as<uint8_t>();
  runner_->set_kv(kv_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<cache::TraceWriter>> ModelStack::open_trace(
    const std::string& path, const base::Clock& clock) const {
  cache::TraceWriterOptions trace;
  trace.block_size = kv_.block_size;
  trace.block_bytes = kv_.block_bytes() * runner_->kv_shape().n_groups;
  trace.start_us = clock.now_us();
  trace.start_unix_ms = clock.unix_s() * 1000;
  trace.key = cache::random_trace_key();
  return cache::TraceWriter::open(path, trace);
}

absl::Status ModelStack::make_engine(const ServeOptions& options, const base::Clock& clock,
                                     prometheus::Registry& registry) {
  const Capabilities& device = backend_->capabilities();
  cache::Identity identity;
  identity.model = model_.digest();
  identity.kv_dtype = kv_.dtype;
  identity.page_layout = kv_.page_layout;
  identity.block_size = kv_.block_size;
  identity.kernel_set = std::string(device.kernel_set);
  cache::KvCacheConfig cache;
  cache.n_blocks = kv_.n_blocks;
  cache.block_size = kv_.block_size;
  cache.n_groups = runner_->kv_shape().n_groups;
  cache.prefix_caching = options.enable_prefix_caching;
  cache.identity = identity.digest();
  const bool has_tiers = options.kv_host_size > 0 || !options.kv_ssd_path.empty();
  if (has_tiers && cache.prefix_caching) {
    ASSIGN_OR_RETURN(tiers_, KvTierStack::create(options, kv_, cache.identity, clock));
    cache.tiers = tiers_->tiers();
  }
  cache_ = std::make_unique<cache::KvCache>(cache, &clock);
  if (cache_->max_tokens() < max_model_len_) {
    context_note_ = fmt::format("lowered from {} to what the KV pool holds", max_model_len_);
    max_model_len_ = cache_->max_tokens();
  }
  if (max_model_len_ < 2) {
    return base::invalid_argument(
        "the KV pool holds {} tokens, too few for a prompt and an answer; give it more with "
        "--kv-cache-memory-bytes",
        max_model_len_);
  }
  engine::EngineConfig config;
  config.max_num_seqs = options.max_num_seqs;
  config.max_num_batched_tokens = options.max_num_batched_tokens;
  config.max_queue = options.max_queue;
  config.max_model_len = max_model_len_;
  config.sessions.idle_host_us =
      std::chrono::duration_cast<std::chrono::microseconds>(options.session_idle_host).count();
  config.sessions.idle_ssd_us =
      std::chrono::duration_cast<std::chrono::microseconds>(options.session_idle_ssd).count();
  config.end_ids = model_.tokenizer->vocabulary().end_ids;
  if (!options.trace_out.empty()) {
    ASSIGN_OR_RETURN(trace_, open_trace(options.trace_out, clock));
    config.trace = trace_.get();
  }
  metrics_ = std::make_unique<engine::Metrics>(registry);
  engine_ = std::make_unique<engine::Engine>(config, *runner_, *cache_, clock, *metrics_);
  if (tiers_ != nullptr) tiers_->set_engine(engine_.get());
  return absl::OkStatus();
}

int64_t ModelStack::pool_tokens() const {
  return int64_t{kv_.n_blocks} * kv_.block_size / runner_->kv_shape().n_groups;
}

void ModelStack::touch_pool() {
  CHECK(!toucher_.joinable());
  toucher_ = std::thread([this] {
    uint8_t* const begin = pool_.as<uint8_t>();
    for (size_t at = 0; at < pool_.bytes() && !stop_touching_.load(); at += kTouchBytes) {
      const size_t bytes = std::min(kTouchBytes, pool_.bytes() - at);
      // Populating leaves the content alone, so the engine may already write there. A kernel that
      // does not know the advice leaves each page to its first use.
      const auto address = reinterpret_cast<uintptr_t>(begin + at);
      const uintptr_t page = (address + 4095) & ~uintptr_t{4095};
      if (page - address >= bytes) return;
      const size_t whole = (bytes - (page - address)) & ~size_t{4095};
      if (madvise(reinterpret_cast<void*>(page), whole, MADV_POPULATE_WRITE) != 0) return;
    }
  });
}

}  // namespace pagoda
