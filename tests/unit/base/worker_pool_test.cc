#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <set>

namespace pagoda::base {
namespace {

TEST(WorkerPoolTest, RunsEveryTaskThatItTook) {
  std::atomic<int> ran{0};
  int taken = 0;
  {
    WorkerPool pool(3, 64);
    for (int i = 0; i < 10'000; ++i) taken += pool.try_post([&ran] { ++ran; });
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(ran, taken);
}

TEST(WorkerPoolTest, TasksMayOwnWhatCannotBeCopied) {
  std::promise<int> answer;
  std::future<int> told = answer.get_future();
  WorkerPool pool(1, 1);
  auto owned = std::make_unique<int>(42);
  ASSERT_TRUE(pool.try_post([owned = std::move(owned), answer = std::move(answer)]() mutable {
    answer.set_value(*owned);
  }));
  EXPECT_EQ(told.get(), 42);
}

TEST(WorkerPoolTest, AFullQueueRefusesAndADestructorRunsWhatIsQueued) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> ran{0};
  std::promise<void> started;
  {
    WorkerPool pool(1, 2);
    ASSERT_TRUE(pool.try_post([&] {
      started.set_value();
      opened.wait();
      ++ran;
    }));
    // From here the only worker is busy, so the queue fills.
    started.get_future().wait();
    EXPECT_TRUE(pool.try_post([&ran] { ++ran; }));
    EXPECT_TRUE(pool.try_post([&ran] { ++ran; }));
    EXPECT_EQ(pool.queued(), 2u);
    EXPECT_FALSE(pool.try_post([&ran] { ran += 100; }));
    gate.set_value();
  }
  EXPECT_EQ(ran, 3);
}

TEST(WorkerPoolTest, StopDropsWhatIsQueuedAndLetsWhatRunsFinish) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> ran{0};
  std::promise<void> started;
  const auto owned = std::make_shared<int>(1);
  {
    WorkerPool pool(1, 10);
    ASSERT_TRUE(pool.try_post([&] {
      started.set_value();
      opened.wait();
      ++ran;
    }));
    started.get_future().wait();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool.try_post([&ran, owned] { ran += 100; }));
    EXPECT_EQ(pool.unfinished(), 6);
    pool.stop();  // returns although a task runs
    EXPECT_EQ(pool.queued(), 0u);
    EXPECT_EQ(pool.unfinished(), 1);
    EXPECT_EQ(owned.use_count(), 1);  // dropped, not only forgotten
    EXPECT_FALSE(pool.try_post([&ran] { ran += 100; }));
    EXPECT_EQ(pool.unfinished(), 1);
    gate.set_value();
  }
  EXPECT_EQ(ran, 1);
}

// Every worker takes part: each task waits until all workers hold one.
TEST(WorkerPoolTest, AllThreadsWorkAtTheSameTime) {
  constexpr int kThreads = 4;
  std::atomic<int> waiting{0};
  std::mutex mutex;
  std::set<std::thread::id> ids;
  {
    WorkerPool pool(kThreads, kThreads);
    for (int i = 0; i < kThreads; ++i) {
      ASSERT_TRUE(pool.try_post([&] {
        ++waiting;
        while (waiting < kThreads) std::this_thread::yield();
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }));
    }
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kThreads));
}

TEST(WorkerPoolTest, ATaskMayPostATask) {
  std::promise<int> depth_reached;
  std::future<int> told = depth_reached.get_future();
  WorkerPool pool(1, 1);
  ASSERT_TRUE(
      pool.try_post([&] { ASSERT_TRUE(pool.try_post([&] { depth_reached.set_value(2); })); }));
  EXPECT_EQ(told.get(), 2);
}

}  // namespace
}  // namespace pagoda::base
