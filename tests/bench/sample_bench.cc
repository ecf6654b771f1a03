// Speed of the CPU sample op: one JSON line a case, in microseconds a row.
//
//   sample_bench [--threads N] [--isa NAME] [--vocab N]
//
// Rows draw from logits of their own, as the sequences of a step do. A case is repeated and its
// fastest rounds count: on a shared machine the others measure the neighbours.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"

namespace pagoda {
namespace {

constexpr int kRounds = 400;

struct Case {
  std::string name;
  float deviation = 3;  // of the logits, which are normal; 0.3 is nearly flat
  ops::SampleRow row;
};

double seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Bench {
 public:
  Bench(const CpuOptions& cpu, int32_t vocab) : vocab_(vocab), cpu_(cpu) {
    auto backend = CpuBackend::create(cpu);
    if (!backend.ok()) {
      fmt::print(stderr, "sample_bench: {}\n", backend.status().ToString());
      std::exit(1);
    }
    backend_ = *std::move(backend);
  }

  void run(const Case& c, int32_t n_rows) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0, c.deviation);
    std::vector<float> logits(static_cast<size_t>(vocab_) * static_cast<size_t>(n_rows));
    for (float& logit : logits) logit = normal(random);
    std::vector<ops::SampleRow> rows(static_cast<size_t>(n_rows), c.row);
    std::vector<ops::SampleResult> results(rows.size());
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].logits_row = static_cast<int32_t>(i);
        rows[i].seed = i;
        rows[i].position = round;
      }
      const double begin = seconds();
      ops::sample(
          *backend_,
          {.logits = logits.data(), .vocab = vocab_, .rows = rows, .results = results.data()});
      times.push_back(seconds() - begin);
    }
    std::ranges::sort(times);
    const double fast = std::accumulate(times.begin(), times.begin() + kRounds / 10, 0.0);
    fmt::print(R"({{"case":"{}","rows":{},"threads":{},"isa":"{}","us_per_row":{:.1f}}})"
               "\n",
               c.name, n_rows, cpu_.n_threads, backend_->capabilities().kernel_set,
               fast / (kRounds / 10) * 1e6 / n_rows);
  }

 private:
  const int32_t vocab_;
  const CpuOptions cpu_;
  std::unique_ptr<Backend> backend_;
};

// A history of n different tokens, as far as the vocabulary has them.
std::vector<ops::TokenCount> history(int32_t n, int32_t vocab) {
  std::vector<ops::TokenCount> counts;
  n = std::min(n, vocab);
  for (int32_t i = 0; i < n; ++i) {
    counts.push_back({static_cast<int32_t>(int64_t{i} * vocab / n), i % 3});
  }
  return counts;
}

std::vector<Case> cases(const std::vector<ops::TokenCount>& counts, ops::LogitBias* bias) {
  std::vector<Case> all;
  all.push_back({"greedy", 3, {.temperature = 0}});
  all.push_back({"plain", 3, {}});
  all.push_back({"top_p", 3, {.top_p = 0.95F}});
  all.push_back({"top_p flat", 0.3F, {.top_p = 0.95F}});
  all.push_back({"top_p half flat", 1.0F, {.top_p = 0.5F}});
  all.push_back({"top_k", 3, {.top_k = 50}});
  all.push_back({"top_k top_p", 3, {.temperature = 0.7F, .top_k = 40, .top_p = 0.9F}});
  all.push_back({"min_p", 3, {.min_p = 0.05F}});
  all.push_back({"plain, logprobs", 3, {.n_top = 5}});
  // A text of 4096 tokens has some 1200 different ones.
  for (const int32_t n : {16, 1200, 4096}) {
    for (const float temperature : {0.0F, 1.0F}) {
      ops::SampleRow row = {.temperature = temperature, .bias = bias};
      row.n_bias = n == 16 ? 16 : 0;
      row.counts = counts.data();
      row.n_counts = n;
      row.repetition_penalty = 1.1F;
      row.frequency_penalty = 0.2F;
      row.presence_penalty = 0.1F;
      all.push_back({fmt::format("{}, penalties on {}{}", temperature > 0 ? "plain" : "greedy", n,
                                 row.n_bias > 0 ? ", 16 biased" : ""),
                     3, row});
    }
  }
  return all;
}

int run(int argc, char** argv) {
  CpuOptions cpu{.n_threads = 1};
  int32_t vocab = 49152;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--threads") cpu.n_threads = std::atoi(argv[i + 1]);
    if (flag == "--isa") cpu.isa = argv[i + 1];
    if (flag == "--vocab") vocab = std::atoi(argv[i + 1]);
  }
  Bench bench(cpu, vocab);
  const std::vector<ops::TokenCount> counts = history(4096, vocab);
  ops::LogitBias bias[16];
  for (int32_t i = 0; i < 16; ++i) bias[i] = {i * (vocab / 16), 1.0F};
  for (const Case& c : cases(counts, bias)) {
    for (const int32_t n_rows : {1, 16}) bench.run(c, n_rows);
  }
  return 0;
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) { return pagoda::run(argc, argv); }
