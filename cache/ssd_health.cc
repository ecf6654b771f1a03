#include "cache/ssd_health.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda::cache {
namespace {

constexpr int32_t kErrorsToOff = 3;
constexpr int64_t kFirstPauseUs = 10'000'000;
constexpr int64_t kLongestPauseUs = 600'000'000;

}  // namespace

SsdHealth::SsdHealth(int64_t stall_us) : stall_us_(stall_us), pause_us_(kFirstPauseUs) {}

uint64_t SsdHealth::begin(int64_t now_us) {
  ops_[next_op_] = {now_us, false};
  return next_op_++;
}

void SsdHealth::end(uint64_t op, bool is_ok, int64_t now_us) {
  count_late(now_us);
  const auto it = ops_.find(op);
  CHECK(it != ops_.end());
  const bool is_counted = it->second.is_counted;
  ops_.erase(it);
  if (is_counted) return;
  if (!is_ok) return error(now_us);
  n_in_a_row_ = 0;
  // What began before the pause says nothing about what comes after it.
  if (now_us >= off_until_us_) pause_us_ = kFirstPauseUs;
}

void SsdHealth::error(int64_t now_us) {
  ++n_errors_;
  if (++n_in_a_row_ < kErrorsToOff) return;
  n_in_a_row_ = 0;
  if (now_us < off_until_us_) return;
  off_until_us_ = now_us + pause_us_;
  pause_us_ = std::min(2 * pause_us_, kLongestPauseUs);
}

bool SsdHealth::is_off(int64_t now_us) {
  count_late(now_us);
  return now_us < off_until_us_;
}

void SsdHealth::count_late(int64_t now_us) {
  for (auto& [id, op] : ops_) {
    if (now_us - op.begin_us <= stall_us_) break;
    if (op.is_counted) continue;
    op.is_counted = true;
    error(now_us);
  }
}

}  // namespace pagoda::cache
