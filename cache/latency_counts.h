// How often something took how long: the counts of a histogram, kept by whoever observes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace pagoda::cache {

struct LatencyCounts {
  // Upper bounds in microseconds, inclusive; beyond the last there is one more count.
  static constexpr std::array<int64_t, 18> kBounds = {
      25,     50,     100,     250,     500,     1'000,     2'500,     5'000,     10'000,
      25'000, 50'000, 100'000, 250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000};

  std::array<int64_t, kBounds.size() + 1> counts{};
  int64_t sum_us = 0;

  void add(int64_t us) {
    ++counts[static_cast<size_t>(std::ranges::lower_bound(kBounds, us) - kBounds.begin())];
    sum_us += us;
  }
};

}  // namespace pagoda::cache
