// Measured values and what they come to.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace pagoda::client {

struct SampleSummary {
  int64_t n = 0;  // with none the others are 0
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// The value below which `share` (0 to 1) of the sorted values lie, between two of them in
// proportion, as numpy's default does it. 0 of none.
double percentile(std::span<const double> sorted, double share);

// Count, mean and maximum are exact. Percentiles are those of all values up to kKept of them, then
// of so many drawn evenly (a reservoir), so memory is bounded however long a run takes.
class Samples {
 public:
  static constexpr size_t kKept = 1 << 20;

  void add(double value);
  SampleSummary summary() const;

 private:
  std::vector<double> kept_;
  int64_t n_ = 0;
  double sum_ = 0;
  double max_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace pagoda::client
