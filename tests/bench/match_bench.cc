// The radix tree at full size: one JSON line a shape of the tree, with the time of a match and the
// bytes that the tree keeps for each block beside its tokens.
//
//   match_bench [--blocks N] [--prompt-tokens N]
//
// Shapes: `documents`, long prompts that share nothing; `chats`, branches of ten blocks behind a
// few hundred beginnings.
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cache/radix_tree.h"

namespace pagoda::cache {
namespace {

constexpr int32_t kBlockSize = 16;

int64_t heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

std::vector<int32_t> tokens(uint64_t seed, int64_t n) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 50'000);
  return tokens;
}

class Bench {
 public:
  Bench() : before_(heap_bytes()), tree_(kBlockSize, 1, {}) {}

  void commit(const std::vector<int32_t>& path) {
    std::vector<std::vector<BlockId>> tables(1);
    const auto n = static_cast<int32_t>(path.size()) / kBlockSize;
    const NodeId end = tree_.lock({}, path, n, tables);
    const auto have = static_cast<int32_t>(tables[0].size());
    while (std::ssize(tables[0]) < n) tables[0].push_back(BlockId(n_blocks_++));
    std::vector<BlockId> twins;
    const auto rest = std::span(path).subspan(static_cast<size_t>(have) * kBlockSize);
    tree_.unlock(tree_.insert(end, rest, have, tables, twins));
  }
  int32_t n_blocks() const { return n_blocks_; }

  void report(std::string_view shape, const std::vector<int32_t>& prompt) {
    constexpr int kRounds = 200;
    const base::SystemClock clock;
    std::vector<int64_t> times;  // us
    int32_t n_matched = 0;
    for (int i = 0; i < kRounds; ++i) {
      const int64_t begin = clock.thread_us();
      n_matched =
          tree_.match({}, prompt, static_cast<int32_t>(prompt.size()) / kBlockSize).n_matched;
      times.push_back(clock.thread_us() - begin);
    }
    std::ranges::sort(times);
    const double bytes = static_cast<double>(heap_bytes() - before_) / n_blocks_;
    fmt::print(
        "{{\"shape\":\"{}\",\"blocks\":{},\"prompt_tokens\":{},\"matched_blocks\":{},"
        "\"match_p50_us\":{},\"match_p99_us\":{},\"bytes_per_block\":{:.1f}}}\n",
        shape, n_blocks_, prompt.size(), n_matched, times[kRounds / 2], times[kRounds * 99 / 100],
        bytes - kBlockSize * sizeof(int32_t));
  }

 private:
  const int64_t before_;
  RadixTree tree_;
  int32_t n_blocks_ = 0;
};

int run(int64_t n_blocks, int64_t prompt_tokens) {
  {
    Bench bench;
    uint64_t seed = 0;
    while (bench.n_blocks() < n_blocks) bench.commit(tokens(++seed, prompt_tokens));
    bench.report("documents", tokens(seed / 2 + 1, prompt_tokens));
  }
  {
    Bench bench;
    const std::vector<int32_t> prompt = tokens(1, prompt_tokens);
    bench.commit(prompt);
    std::mt19937_64 random(2);
    uint64_t seed = 1'000'000;
    while (bench.n_blocks() < n_blocks) {
      const auto n_shared = static_cast<std::ptrdiff_t>(random() % 400) * kBlockSize;
      std::vector<int32_t> path(prompt.begin(), prompt.begin() + n_shared);
      const std::vector<int32_t> end = tokens(++seed, int64_t{10} * kBlockSize);
      path.insert(path.end(), end.begin(), end.end());
      bench.commit(path);
    }
    bench.report("chats", prompt);
  }
  return 0;
}

}  // namespace
}  // namespace pagoda::cache

int main(int argc, char** argv) {
  int64_t n_blocks = 1'000'000;
  int64_t prompt_tokens = 100'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--blocks") n_blocks = std::atoll(argv[i + 1]);
    if (flag == "--prompt-tokens") prompt_tokens = std::atoll(argv[i + 1]);
  }
  return pagoda::cache::run(n_blocks, prompt_tokens);
}
