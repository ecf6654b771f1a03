#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>
#include <vector>

namespace pagoda::base {
namespace {

TEST(SystemClockTest, NeverGoesBackAndMovesOn) {
  const SystemClock clock;
  const int64_t first = clock.now_us();
  int64_t last = first;
  // Some clocks tick coarsely; a second is far above any tick.
  while (last == first) {
    const int64_t now = clock.now_us();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_LT(last - first, 1'000'000);
}

TEST(SystemClockTest, UnixTimeIsTheSystems) {
  const int64_t before = std::time(nullptr);
  const int64_t told = SystemClock().unix_s();
  const int64_t after = std::time(nullptr);
  // time() may lag by one of its ticks.
  EXPECT_GE(told, before - 1);
  EXPECT_LE(told, after + 1);
}

TEST(FakeClockTest, StandsStillUntilAdvanced) {
  FakeClock clock;
  EXPECT_EQ(clock.now_us(), clock.now_us());
  const int64_t start_us = clock.now_us();
  const int64_t start_s = clock.unix_s();
  clock.advance_us(999'999);
  EXPECT_EQ(clock.now_us(), start_us + 999'999);
  EXPECT_EQ(clock.unix_s(), start_s);
  clock.advance_us(1);
  EXPECT_EQ(clock.unix_s(), start_s + 1);
}

TEST(FakeClockTest, EveryAdvanceCountsFromAnyThread) {
  FakeClock clock;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&clock] {
      for (int k = 0; k < 10'000; ++k) clock.advance_us(3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clock.now_us(), 120'000);
}

}  // namespace
}  // namespace pagoda::base
