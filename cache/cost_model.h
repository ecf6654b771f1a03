// What it costs to compute a stretch of a prompt, and to bring it up from a tier: measured while
// serving, and from these the cheapest way to have it.
#pragma once

#include <array>
#include <cstdint>

#include "cache/tier.h"

namespace pagoda::cache {

enum class RestorePolicy : uint8_t { kAuto, kRestore, kRecompute };

// A stretch [begin, end) of a prompt, in tokens, that lies below the device.
struct RestoreQuestion {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t block_size = 16;
  std::array<int32_t, 3> n_blocks{};  // of it, by the tier that would serve them
  std::array<int32_t, 3> n_queued{};  // blocks that wait before it, by tier
  int32_t n_rows_queued = 0;          // prompt rows of others that are computed before it
};

// Compute [begin, split), restore [split, end); split is begin (restore all), end (recompute all),
// or where both finish together.
struct RestoreAnswer {
  int32_t split = 0;
  double predicted_s = 0;  // until all of it is there
  double restore_all_s = 0;
  double recompute_all_s = 0;
};

// One thread. Until something was measured it goes by cautious guesses and prefers to restore, so
// that there is something to measure.
class CostModel {
 public:
  explicit CostModel(RestorePolicy policy) : policy_(policy) {}

  // A step computed `n_rows` prompt rows that began at `position`, in `us` (its share of the step).
  void observe_prefill(int32_t position, int32_t n_rows, int64_t us);
  // n blocks came up from a tier in `us` of wall time, several at once, the first of them in
  // `first_us`.
  void observe_restore(TierKind tier, int32_t n_blocks, int64_t us, int64_t first_us);

  // Seconds for rows [begin, end) of one prompt.
  double prefill_s(int32_t begin, int32_t end) const;
  double restore_s(TierKind tier, int32_t n_blocks) const;
  RestoreAnswer decide(const RestoreQuestion& question) const;

 private:
  // Sums in which an observation's weight fades with every later one.
  struct Rate {
    double us = 0;
    double n = 0;
    void add(double more_us, double more_n);
    bool is_measured() const { return n > 0; }
    double us_per_one() const { return us / n; }  // is_measured()
  };
  // Rows of like context length: bucket i has those with fewer than 2^(i + 9) tokens before them,
  // the last one all beyond.
  static constexpr int kBuckets = 10;

  double row_us(int bucket) const;
  double mean_row_us() const;
  double latency_us(size_t tier) const;
  double block_us(size_t tier) const;
  double restore_us(size_t tier, double n_blocks) const;
  double recompute_s(const RestoreQuestion& question, int32_t split) const;
  double restore_last_s(const RestoreQuestion& question, int32_t n_columns, int32_t of) const;
  bool is_measured(const RestoreQuestion& question) const;

  const RestorePolicy policy_;
  std::array<Rate, kBuckets> rows_{};
  std::array<Rate, 3> blocks_{};   // by TierKind: wall time over blocks, several coming at once
  std::array<Rate, 3> latency_{};  // by TierKind: of the first
};

}  // namespace pagoda::cache
