#include "base/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace pagoda::base {
namespace {

TEST(QueueTest, KeepsOrder) {
  BoundedQueue<int> queue(8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(queue.try_push(i));
  for (int i = 0; i < 8; ++i) ASSERT_EQ(queue.pop(), i);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(QueueTest, FullRefusesAndLeavesTheValueAlone) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  ASSERT_TRUE(queue.try_push(std::make_unique<int>(1)));
  ASSERT_TRUE(queue.try_push(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(queue.try_push(third));
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(*third, 3);
  EXPECT_EQ(**queue.pop(), 1);
  EXPECT_TRUE(queue.try_push(third));
  EXPECT_EQ(third, nullptr);
  EXPECT_EQ(queue.size(), 2u);
}

TEST(QueueTest, CapacityZeroTakesNothing) {
  BoundedQueue<int> queue(0);
  EXPECT_FALSE(queue.try_push(1));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(QueueTest, DrainTakesAllInOrderAndMakesRoom) {
  BoundedQueue<int> queue(3);
  EXPECT_TRUE(queue.drain().empty());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.try_push(i));
  EXPECT_EQ(queue.drain(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(queue.try_push(9));
  EXPECT_EQ(queue.drain(), std::vector<int>{9});
}

TEST(QueueTest, ClosedRefusesButGivesOutWhatItHolds) {
  BoundedQueue<int> queue(4);
  ASSERT_TRUE(queue.try_push(1));
  ASSERT_TRUE(queue.try_push(2));
  queue.close();
  int refused = 3;
  EXPECT_FALSE(queue.try_push(refused));
  EXPECT_EQ(refused, 3);
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), 2);
  EXPECT_EQ(queue.pop(), std::nullopt);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(QueueTest, CloseWakesEverySleeper) {
  BoundedQueue<int> queue(4);
  std::atomic<int> woken{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i) {
    sleepers.emplace_back([&] {
      EXPECT_EQ(queue.pop(), std::nullopt);
      ++woken;
    });
  }
  queue.close();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(woken, 4);
}

// Each value pushed by any thread is popped exactly once, and those of one sender in its order.
TEST(QueueTest, ManySendersManyReceiversLoseNothing) {
  constexpr int kSenders = 4, kReceivers = 3, kEach = 5'000;
  BoundedQueue<int> queue(16);
  std::vector<std::atomic<int>> seen(kSenders * kEach);
  std::vector<std::thread> senders, receivers;
  for (int r = 0; r < kReceivers; ++r) {
    receivers.emplace_back([&] {
      std::vector<int> last(kSenders, -1);
      while (const std::optional<int> value = queue.pop()) {
        ++seen[static_cast<size_t>(*value)];
        int& newest = last[static_cast<size_t>(*value / kEach)];
        EXPECT_LT(newest, *value % kEach);
        newest = *value % kEach;
      }
    });
  }
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&queue, s] {
      for (int i = 0; i < kEach; ++i) {
        int value = s * kEach + i;
        while (!queue.try_push(value)) std::this_thread::yield();
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  queue.close();
  for (std::thread& receiver : receivers) receiver.join();
  for (const std::atomic<int>& count : seen) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace pagoda::base
