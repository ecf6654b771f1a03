// Time as something that is passed in, so that the simulator and the tests own it.
#pragma once

#include <atomic>
#include <cstdint>

namespace pagoda::base {

// Any thread may ask.
class Clock {
 public:
  virtual ~Clock() = default;
  // Microseconds since some fixed moment; never goes back.
  virtual int64_t now_us() const = 0;
  // Microseconds of processor time that the calling thread has had.
  virtual int64_t thread_us() const = 0;
  // Seconds since 1970-01-01, for what clients see ("created").
  virtual int64_t unix_s() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t now_us() const override;
  int64_t thread_us() const override;
  int64_t unix_s() const override;
};

// Stands still until it is told to advance.
class FakeClock final : public Clock {
 public:
  int64_t now_us() const override { return now_us_.load(std::memory_order_relaxed); }
  int64_t thread_us() const override { return now_us(); }
  int64_t unix_s() const override { return 1'700'000'000 + now_us() / 1'000'000; }
  void advance_us(int64_t us) { now_us_.fetch_add(us, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_us_{0};
};

}  // namespace pagoda::base
