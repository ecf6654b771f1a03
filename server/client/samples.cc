#include "server/client/samples.h"

#include <algorithm>
#include <cmath>

namespace pagoda::client {

double percentile(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0;
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - std::floor(at)) * (sorted[above] - sorted[below]);
}

void Samples::add(double value) {
  max_ = n_ == 0 ? value : std::max(max_, value);
  sum_ += value;
  ++n_;
  if (kept_.size() < kKept) return kept_.push_back(value);
  const uint64_t at =
      std::uniform_int_distribution<uint64_t>(0, static_cast<uint64_t>(n_) - 1)(random_);
  if (at < kept_.size()) kept_[at] = value;
}

SampleSummary Samples::summary() const {
  if (n_ == 0) return {};
  std::vector<double> sorted = kept_;
  std::ranges::sort(sorted);
  return {.n = n_,
          .mean = sum_ / static_cast<double>(n_),
          .p50 = percentile(sorted, 0.50),
          .p90 = percentile(sorted, 0.90),
          .p99 = percentile(sorted, 0.99),
          .max = max_};
}

}  // namespace pagoda::client
