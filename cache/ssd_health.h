// Whether a disk can be relied on: three errors in a row switch it off for a while, and the while
// doubles until something succeeds again. An op that takes too long is an error, also before it has
// ended.
#pragma once

#include <cstdint>
#include <map>

namespace pagoda::cache {

// Whoever owns it guards it.
class SsdHealth {
 public:
  explicit SsdHealth(int64_t stall_us);

  // Each read, write or sync between the two.
  uint64_t begin(int64_t now_us);
  void end(uint64_t op, bool is_ok, int64_t now_us);
  // An error of a call that was waited for.
  void error(int64_t now_us);

  bool is_off(int64_t now_us);
  int64_t n_errors() const { return n_errors_; }

 private:
  struct Op {
    int64_t begin_us = 0;
    bool is_counted = false;  // as an error, since it is late
  };
  void count_late(int64_t now_us);

  int64_t stall_us_;
  std::map<uint64_t, Op> ops_;  // under way, the oldest first
  uint64_t next_op_ = 1;
  int64_t n_errors_ = 0;
  int32_t n_in_a_row_ = 0;
  int64_t pause_us_;
  int64_t off_until_us_ = 0;
};

}  // namespace pagoda::cache
