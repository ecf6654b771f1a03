// Speed of attention, of the row ops around it, and of sampling, in the shapes of SmolLM2-135M (9
// heads over 3 KV heads of 64, f16 KV, 49152 tokens). Counters: multiply-adds per second, bytes of
// KV per second, rows per second. The arguments are threads, then the case's own.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"

namespace pagoda {
namespace {

constexpr int32_t kHeads = 9;
constexpr int32_t kKvHeads = 3;
constexpr int32_t kHeadDim = 64;
constexpr int32_t kRowLen = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int32_t kVocab = 49152;

std::unique_ptr<Backend> make_backend(int64_t n_threads) {
  auto backend = CpuBackend::create({.n_threads = static_cast<int32_t>(n_threads), .isa = {}});
  CHECK(backend.ok());
  return *std::move(backend);
}

std::vector<float> random_floats(size_t n, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// n_seqs sequences of n_rows rows at `position`, all in one pool of several layers, so that KV
// comes from memory as it does in a model.
class World {
 public:
  static constexpr int32_t kLayers = 30;

  World(Backend& backend, int32_t n_seqs, int32_t position, int32_t n_rows)
      : backend_(backend), n_rows_(n_seqs * n_rows) {
    const int32_t blocks_per_seq = (position + n_rows + kPageTokens - 1) / kPageTokens;
    kv_ = {.page_layout = backend.capabilities().page_layout,
           .n_blocks = n_seqs * blocks_per_seq,
           .n_layers = kLayers,
           .n_kv_heads = kKvHeads,
           .head_dim = kHeadDim};
    auto memory = backend.allocate(static_cast<size_t>(kv_.pool_bytes()));
    CHECK(memory.ok());
    memory_ = *std::move(memory);
    kv_.base = memory_.as<uint8_t>();
    auto* halves = memory_.as<uint16_t>();
    for (int64_t i = 0; i < kv_.pool_bytes() / 2; ++i) {
      halves[i] = f32_to_f16(static_cast<float>((i * 7919) % 256 - 128) / 128.0F);
    }
    for (int32_t i = 0; i < kv_.n_blocks; ++i) blocks_.emplace_back(i);
    for (int32_t s = 0; s < n_seqs; ++s) {
      seqs_.push_back({s * n_rows, n_rows, position, blocks_.data() + s * blocks_per_seq});
      for (int32_t r = 0; r < n_rows; ++r) {
        slots_.push_back(
            {blocks_[static_cast<size_t>(s * blocks_per_seq + (position + r) / kPageTokens)],
             (position + r) % kPageTokens});
      }
    }
    qkv_ = random_floats(static_cast<size_t>(n_rows_) * kRowLen, 1);
    // Turns by 45 degrees, so that rotating again and again neither grows nor shrinks anything.
    cos_sin_.assign(static_cast<size_t>(n_rows_) * kHeadDim, std::sqrt(0.5F));
    out_.resize(static_cast<size_t>(n_rows_) * kHeads * kHeadDim);
    ops::plan_attention(backend, {.kv = &kv_, .n_heads = kHeads, .seqs = seqs_});
  }

  void attend() {
    ops::attention(backend_, {.q = qkv_.data(),
                              .q_stride = kRowLen,
                              .out = out_.data(),
                              .kv = &kv_,
                              .layer = layer_,
                              .n_heads = kHeads,
                              .scale = 0.125F,
                              .seqs = seqs_});
    layer_ = (layer_ + 1) % kLayers;
  }
  void write() {
    ops::rope_kv_write(backend_, {.qkv = qkv_.data(),
                                  .cos_sin = cos_sin_.data(),
                                  .slots = slots_.data(),
                                  .kv = &kv_,
                                  .layer = layer_,
                                  .n_rows = n_rows_,
                                  .n_heads = kHeads,
                                  .rope_dim = kHeadDim});
    layer_ = (layer_ + 1) % kLayers;
  }

  // Of one call of attend.
  double multiply_adds() const {
    double visible = 0;
    for (const ops::AttentionSeq& seq : seqs_) {
      visible += seq.n_rows * (seq.position + (seq.n_rows + 1) / 2.0);
    }
    return visible * kHeads * kHeadDim * 2;
  }
  double kv_bytes() const {
    double tokens = 0;
    for (const ops::AttentionSeq& seq : seqs_) tokens += seq.position + seq.n_rows;
    return tokens * static_cast<double>(kv_.layer_bytes()) / kPageTokens;
  }

 private:
  Backend& backend_;
  int32_t n_rows_;
  int32_t layer_ = 0;
  KvView kv_;
  Buffer memory_;
  std::vector<BlockId> blocks_;
  std::vector<ops::AttentionSeq> seqs_;
  std::vector<ops::KvSlot> slots_;
  std::vector<float> qkv_;
  std::vector<float> cos_sin_;
  std::vector<float> out_;
};

benchmark::Counter rate(double per_iteration) {
  return {per_iteration, benchmark::Counter::kIsIterationInvariantRate};
}

void attention(benchmark::State& state) {
  const auto backend = make_backend(state.range(0));
  World world(*backend, static_cast<int32_t>(state.range(1)), static_cast<int32_t>(state.range(2)),
              static_cast<int32_t>(state.range(3)));
  for (auto _ : state) world.attend();
  state.counters["fma"] = rate(world.multiply_adds());
  state.counters["kv_bytes"] = rate(world.kv_bytes());
}
BENCHMARK(attention)
    ->ArgNames({"threads", "seqs", "position", "rows"})
    ->ArgsProduct({{1, 2}, {1}, {0}, {512}})
    ->ArgsProduct({{1, 2}, {1}, {3584}, {512}})
    ->ArgsProduct({{1, 2}, {16}, {1000}, {1}})
    ->ArgsProduct({{1, 2}, {1}, {4000}, {1}})
    ->ArgsProduct({{1, 2}, {1}, {100}, {1}})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void rope_kv_write(benchmark::State& state) {
  const auto backend = make_backend(state.range(0));
  World world(*backend, 1, 0, static_cast<int32_t>(state.range(1)));
  for (auto _ : state) world.write();
  state.counters["rows"] = rate(static_cast<double>(state.range(1)));
}
BENCHMARK(rope_kv_write)
    ->ArgNames({"threads", "rows"})
    ->ArgsProduct({{1, 2}, {1, 512}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void rms_norm(benchmark::State& state) {
  const auto backend = make_backend(1);
  const std::vector<float> x = random_floats(512 * 576, 1);
  std::vector<float> out(x.size());
  for (auto _ : state) {
    ops::rms_norm(*backend, {.x = x.data(),
                             .weight = x.data(),
                             .out = out.data(),
                             .n_rows = 512,
                             .dim = 576,
                             .eps = 1e-5F});
  }
}
BENCHMARK(rms_norm)->Unit(benchmark::kMicrosecond);

void silu_mul(benchmark::State& state) {
  const auto backend = make_backend(1);
  const std::vector<float> gate_up = random_floats(512 * 2 * 1536, 1);
  std::vector<float> out(512 * 1536);
  for (auto _ : state) {
    ops::silu_mul(*backend,
                  {.gate_up = gate_up.data(), .out = out.data(), .n_rows = 512, .dim = 1536});
  }
}
BENCHMARK(silu_mul)->Unit(benchmark::kMicrosecond);

// One row; a deviation of 3 is about as spread as a model's logits, 0.1 is nearly flat.
void sample(benchmark::State& state, ops::SampleRow row, float deviation) {
  const auto backend = make_backend(1);
  const std::vector<float> logits = random_floats(kVocab, deviation);
  ops::SampleResult result;
  for (auto _ : state) {
    ++row.position;
    ops::sample(*backend,
                {.logits = logits.data(), .vocab = kVocab, .rows = {&row, 1}, .results = &result});
    benchmark::DoNotOptimize(result.token);
  }
}
BENCHMARK_CAPTURE(sample, greedy, {.temperature = 0}, 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, temperature, {.temperature = 0.8F}, 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_p, {.temperature = 0.8F, .top_p = 0.95F}, 3.0F)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_p_flat, {.top_p = 0.95F}, 0.1F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, top_k, {.temperature = 0.8F, .top_k = 50}, 3.0F)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, min_p, {.min_p = 0.05F}, 3.0F)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, logprobs, {.temperature = 0, .n_top = 20}, 3.0F)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagoda
