// Speed of the CPU matmul at the shapes of SmolLM2-135M: one JSON line a case.
//
//   matmul_bench [--threads N] [--isa NAME] [--type NAME] [--rows N] [--clock cpu]
//
// With --clock cpu a case takes the processor time of all threads divided by their number: for one
// thread it is what a busy machine would give if it were idle.
//
// gmacs is 10^9 multiply-adds a second, gbytes 10^9 bytes of packed weights a second. A case goes
// round copies of its weight that are together as large as a model, as the layers of one are, so
// that few rows find their weights where a real step would. Of each copy the best of several rounds
// counts: on a shared machine the others measure the neighbours.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
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

constexpr int64_t kModelBytes = int64_t{96} << 20;
constexpr double kCaseSeconds = 0.4;

struct Case {
  DType type;
  int64_t n;
  int64_t k;
  int32_t n_rows;
};

struct Filter {
  CpuOptions cpu;
  std::string type;
  int32_t n_rows = 0;
  bool cpu_clock = false;
};

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Random bytes whose pairs are halves of ordinary size and whose fours are ordinary floats: neither
// NaN nor subnormal.
std::vector<uint8_t> weight_bytes(const Case& c) {
  std::vector<uint8_t> bytes(static_cast<size_t>(c.n * dtype_row_bytes(c.type, c.k)));
  std::mt19937 random(1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(0x38 + random() % 8);
  return bytes;
}

void run_case(CpuBackend& backend, const Case& c, bool cpu_clock) {
  const std::vector<uint8_t> bytes = weight_bytes(c);
  const WeightSource source = {bytes.data(), c.type, c.n, c.k};
  std::vector<std::unique_ptr<PackedWeight>> copies;
  int64_t total = 0;
  const int64_t wanted = c.n_rows > 16 ? 1 : kModelBytes;
  while (total < wanted) {
    copies.push_back(std::move(backend.pack({&source, 1}, 0, 1)).value());
    total += copies.back()->bytes();
  }
  const std::vector<float> x(static_cast<size_t>(c.n_rows * c.k), 0.5F);
  std::vector<float> y(static_cast<size_t>(c.n_rows * c.n));
  std::vector<double> least(copies.size(), 1e9);
  const clockid_t clock = cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  const double share = cpu_clock ? 1.0 / backend.pool().n_threads() : 1.0;
  const double end = seconds(CLOCK_MONOTONIC) + kCaseSeconds;
  for (int round = 0; round < 3 || seconds(CLOCK_MONOTONIC) < end; ++round) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const double start = seconds(clock);
      ops::matmul(backend,
                  {.x = x.data(), .weight = copies[i].get(), .y = y.data(), .n_rows = c.n_rows});
      least[i] = std::min(least[i], (seconds(clock) - start) * share);
    }
  }
  const double best = std::accumulate(least.begin(), least.end(), 0.0);
  const double macs =
      static_cast<double>(c.n_rows * c.n * c.k) * static_cast<double>(copies.size());
  fmt::print(R"({{"bench":"matmul","isa":"{}","threads":{},"type":"{}","n":{},"k":{},"rows":{},)"
             R"("us":{:.1f},"gmacs":{:.1f},"gbytes":{:.2f}}})"
             "\n",
             backend.isa().name, backend.pool().n_threads(), dtype_info(c.type).name, c.n, c.k,
             c.n_rows, best * 1e6 / static_cast<double>(copies.size()), macs * 1e-9 / best,
             static_cast<double>(total) * 1e-9 / best);
}

Filter parse(int argc, char** argv) {
  Filter filter;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--threads") filter.cpu.n_threads = std::atoi(argv[i + 1]);
    if (flag == "--isa") filter.cpu.isa = argv[i + 1];
    if (flag == "--type") filter.type = argv[i + 1];
    if (flag == "--rows") filter.n_rows = std::atoi(argv[i + 1]);
    if (flag == "--clock") filter.cpu_clock = std::string_view(argv[i + 1]) == "cpu";
  }
  return filter;
}

int run(int argc, char** argv) {
  const Filter filter = parse(argc, argv);
  auto backend = CpuBackend::create(filter.cpu);
  if (!backend.ok()) {
    fmt::print(stderr, "{}\n", base::message_of(backend.status()));
    return 1;
  }
  struct Shape {
    int64_t n, k;
  };
  constexpr Shape kLayer[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  std::vector<Case> cases;
  for (const int32_t n_rows : {1, 4, 16, 512}) {
    for (const Shape s : kLayer) cases.push_back({DType::kQ4_1, s.n, s.k, n_rows});
    cases.push_back({DType::kQ8_0, 49152, 576, n_rows});
    for (const DType type :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ5_0, DType::kQ5_1,
          DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      cases.push_back({type, 1536, 1536, n_rows});
    }
  }
  for (const Case& c : cases) {
    const bool wanted = (filter.type.empty() || filter.type == dtype_info(c.type).name) &&
                        (filter.n_rows == 0 || filter.n_rows == c.n_rows);
    if (wanted) run_case(**backend, c, filter.cpu_clock);
  }
  return 0;
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) { return pagoda::run(argc, argv); }
