// So many bytes in a while: a bucket that is full at the start and refilled evenly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pagoda::cache {

// Whoever owns it guards it. Times are those of a base::Clock and never go back.
class TokenBucket {
 public:
  TokenBucket(int64_t capacity, double per_us, int64_t now_us)
      : capacity_(capacity),
        per_us_(per_us),
        level_(static_cast<double>(capacity)),
        at_us_(now_us) {}

  // Takes all n or nothing.
  bool try_take(int64_t n, int64_t now_us) {
    refill(now_us);
    if (level_ < static_cast<double>(n)) return false;
    level_ -= static_cast<double>(n);
    return true;
  }
  // Takes n even if that makes a debt, and tells how long it will take to pay that back.
  int64_t spend(int64_t n, int64_t now_us) {
    refill(now_us);
    level_ -= static_cast<double>(n);
    if (level_ >= 0) return 0;
    return static_cast<int64_t>(std::ceil(-level_ / per_us_));
  }
  void give_back(int64_t n) { level_ = std::min(level_ + static_cast<double>(n), full()); }
  // Negative: a debt.
  int64_t level(int64_t now_us) {
    refill(now_us);
    return static_cast<int64_t>(std::floor(level_));
  }

 private:
  double full() const { return static_cast<double>(capacity_); }
  void refill(int64_t now_us) {
    if (now_us <= at_us_) return;
    level_ = std::min(full(), level_ + per_us_ * static_cast<double>(now_us - at_us_));
    at_us_ = now_us;
  }

  int64_t capacity_;
  double per_us_;
  double level_;
  int64_t at_us_;
};

}  // namespace pagoda::cache
