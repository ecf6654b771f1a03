#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace pagoda::cpu {
namespace {

TEST(ThreadPoolTest, EachItemOnce) {
  for (const int32_t n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    for (const int64_t n_items : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t chunk : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(n_items));
        pool.parallel_for(n_items, chunk, [&](int64_t begin, int64_t end, int32_t worker) {
          EXPECT_TRUE(worker >= 0 && worker < n_threads);
          EXPECT_LT(begin, end);
          EXPECT_LE(end - begin, chunk);
          EXPECT_EQ(begin % chunk, 0);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const std::atomic<int>& count : visits) ASSERT_EQ(count, 1);
      }
    }
  }
}

// Loops follow each other at once, with plain memory that one writes and the next reads: a worker
// that lags behind must neither take a piece of the wrong loop nor miss what was written.
TEST(ThreadPoolTest, LoopsInASequence) {
  ThreadPool pool(4);
  std::vector<int64_t> values(37, 0);
  for (int64_t loop = 0; loop < 20000; ++loop) {
    const int64_t n = 2 + loop % 36;
    pool.parallel_for(n, 1 + loop % 3, [&, loop](int64_t begin, int64_t end, int32_t) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += loop;
    });
  }
  for (int64_t i = 0; i < 37; ++i) {
    int64_t want = 0;
    for (int64_t loop = 0; loop < 20000; ++loop) want += 2 + loop % 36 > i ? loop : 0;
    ASSERT_EQ(values[static_cast<size_t>(i)], want);
  }
}

TEST(ThreadPoolTest, SleepersWake) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // A loop that one worker alone can't end.
    std::atomic<int> arrived{0};
    pool.parallel_for(3, 1, [&](int64_t, int64_t, int32_t) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
    ASSERT_EQ(arrived, 3);
  }
}

TEST(ThreadPoolTest, OnePieceRunsInTheCaller) {
  ThreadPool pool(4);
  for (int i = 0; i < 100; ++i) {
    std::thread::id ran;
    pool.parallel_for(10, 10, [&](int64_t, int64_t, int32_t worker) {
      EXPECT_EQ(worker, 0);
      ran = std::this_thread::get_id();
    });
    ASSERT_EQ(ran, std::this_thread::get_id());
  }
}

TEST(ThreadPoolTest, ScratchIsOfOneWorker) {
  ThreadPool pool(3);
  std::vector<void*> memory(3);
  std::atomic<int> arrived{0};
  pool.parallel_for(3, 1, [&](int64_t, int64_t, int32_t worker) {
    void* data = pool.scratch(worker, 100);
    static_cast<char*>(data)[99] = 1;
    memory[static_cast<size_t>(worker)] = data;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0U);
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(std::set<void*>(memory.begin(), memory.end()).size(), 3U);
  EXPECT_EQ(pool.scratch(0, 40), memory[0]);
}

TEST(ThreadPoolTest, IdleUsesNoProcessor) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  pool.parallel_for(100, 1, [&](int64_t begin, int64_t, int32_t) { sum += begin; });
  EXPECT_EQ(sum, 4950);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto used_ms = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
  };
  const auto before = used_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(used_ms() - before, 20);
}

TEST(ThreadPoolTest, EndsWhileWorkersSpinOrSleep) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    if (i % 2 == 0) pool.parallel_for(8, 1, [](int64_t, int64_t, int32_t) {});
    if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

}  // namespace
}  // namespace pagoda::cpu
