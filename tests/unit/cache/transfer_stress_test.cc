#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cache/transfer.h"
#include "tests/unit/cache/fake_tier.h"

namespace pagoda::cache {
namespace {

// Threads that answer calls in no order, after a while, and fail some.
class ThreadedTier {
 public:
  ThreadedTier(int n_threads, uint32_t seed, int32_t percent_failing)
      : percent_failing_(percent_failing), tier_([this](Call call) { take(std::move(call)); }) {
    for (int i = 0; i < n_threads; ++i) {
      threads_.emplace_back([this, seed, i] { work(seed + static_cast<uint32_t>(i)); });
    }
  }
  ~ThreadedTier() {
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    filled_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Tier* tier() { return &tier_; }
  int32_t most_gets() const { return most_gets_; }
  int32_t n_open() const { return n_open_; }

 private:
  void take(Call call) {
    ++n_open_;
    if (call.is_get) {
      const int32_t now = ++n_gets_;
      int32_t most = most_gets_;
      while (most < now && !most_gets_.compare_exchange_weak(most, now)) {
      }
    }
    {
      std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    filled_.notify_one();
  }
  void work(uint32_t seed) {
    std::mt19937 random(seed);
    std::unique_lock lock(mutex_);
    while (true) {
      filled_.wait(lock, [this] { return is_ending_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const auto it = calls_.begin() + static_cast<int64_t>(random() % calls_.size());
      Call call = std::move(*it);
      calls_.erase(it);
      lock.unlock();
      for (auto i = random() % 20; i > 0; --i) std::this_thread::yield();
      const bool fails = static_cast<int32_t>(random() % 100) < percent_failing_;
      if (call.is_get) --n_gets_;
      --n_open_;
      call.answer(!fails ? absl::OkStatus() : call.is_get ? failure() : full());
      lock.lock();
    }
  }

  const int32_t percent_failing_;
  FakeTier tier_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Call> calls_;
  bool is_ending_ = false;
  std::atomic<int32_t> n_gets_{0};
  std::atomic<int32_t> most_gets_{0};
  std::atomic<int32_t> n_open_{0};
  std::vector<std::thread> threads_;
};

// Plays the engine's thread at random, and keeps account of every block.
class Stress {
 public:
  explicit Stress(uint32_t seed)
      : random_(seed),
        device_(kBlocks),
        tiers_(5, seed + 100, 10),
        engine_(kOptions, device_.memory(), tiers_.tier(), tiers_.tier(), clock_,
                [this] { wake(); }) {
    for (int32_t i = 0; i < kBlocks; ++i) free_.push_back(i);
  }

  void run(int n_moves) {
    for (int i = 0; i < n_moves && !testing::Test::HasFailure(); ++i) {
      const auto move = random_() % 64;
      if (move < 8) {
        restore();
      } else if (move < 20) {
        append();
      } else if (move < 26) {
        take_back();
      } else if (move < 28) {
        end();
      } else if (move < 40) {
        offload();
      } else if (move < 52) {
        poll();
      } else if (!engine_.idle()) {
        ASSERT_TRUE(wait_for_wake());  // it is sure to come
      }
    }
    while (!engine_.idle() && !testing::Test::HasFailure()) {
      ASSERT_TRUE(wait_for_wake());
      poll();
    }
    EXPECT_TRUE(jobs_.empty());
    EXPECT_TRUE(offloads_.empty());
    EXPECT_EQ(free_.size(), static_cast<size_t>(kBlocks));
    EXPECT_LE(tiers_.most_gets(), kOptions.restore_window);
    const TransferStats stats = engine_.stats();
    EXPECT_EQ(stats.n_restores_waiting() + stats.n_restores_running, 0);
    EXPECT_EQ(stats.n_offloads_waiting + stats.n_offloads_running, 0);
    int64_t n_told = 0;
    for (const TransferStats::OneTier& tier : stats.tiers) {
      n_told += tier.n_restored + tier.n_failed + tier.n_offloaded + tier.n_declined;
    }
    EXPECT_EQ(n_told, n_told_);
    EXPECT_GT(n_told_, n_moves / 10);
    EXPECT_GT(n_taken_, n_moves / 10);
    std::lock_guard lock(mutex_);
    EXPECT_LE(n_wakes_, n_polls_with_news_ + 1);
  }

 private:
  static constexpr int32_t kBlocks = 200;
  static constexpr TransferOptions kOptions = {
      .restore_window = 5, .offload_window = 3, .max_offloads = 1 << 20};
  struct Job {
    std::deque<std::pair<int32_t, int32_t>> open;  // (index, block): neither told nor taken
    int32_t n_given = 0;
    bool is_ended = false;
  };

  void wake() {
    {
      std::lock_guard lock(mutex_);
      has_news_ = true;
      ++n_wakes_;
    }
    woken_.notify_all();
  }
  bool wait_for_wake() {
    std::unique_lock lock(mutex_);
    return woken_.wait_for(lock, std::chrono::seconds(60), [this] { return has_news_; });
  }
  int32_t take_free() {
    const size_t at = random_() % free_.size();
    std::swap(free_[at], free_.back());
    const int32_t block = free_.back();
    free_.pop_back();
    return block;
  }
  std::vector<RestoreBlock> some_blocks(Job& job) {
    std::vector<RestoreBlock> blocks;
    for (size_t n = random_() % 12; n > 0 && !free_.empty(); --n) {
      const int32_t block = take_free();
      device_.fill(block, 0xEE);
      const TierKind from = random_() % 2 == 0 ? TierKind::kHost : TierKind::kSsd;
      blocks.push_back({key_of(n_keys_++), from, BlockId(block)});
      job.open.emplace_back(job.n_given++, block);
    }
    return blocks;
  }
  std::map<TransferId, Job>::iterator some_job() {
    auto it = jobs_.begin();
    if (!jobs_.empty()) std::advance(it, random_() % jobs_.size());
    return it;
  }

  void restore() {
    Job job;
    const std::vector<RestoreBlock> blocks = some_blocks(job);
    const TransferId id = engine_.restore(blocks);
    EXPECT_FALSE(jobs_.contains(id));
    if (blocks.empty()) {
      EXPECT_FALSE(engine_.append(id, {}));
    } else {
      jobs_.emplace(id, std::move(job));
    }
  }
  void append() {
    const auto it = some_job();
    if (it == jobs_.end()) return;
    if (it->second.is_ended) {
      EXPECT_FALSE(engine_.append(it->first, {}));
    } else {
      EXPECT_TRUE(engine_.append(it->first, some_blocks(it->second)));
    }
  }
  // What the engine took off a job's end must not have been touched, and must never be.
  void take_off(Job& job, int32_t n) {
    ASSERT_LE(static_cast<size_t>(n), job.open.size());
    for (; n > 0; --n) {
      const int32_t block = job.open.back().second;
      job.open.pop_back();
      ++n_taken_;
      EXPECT_TRUE(device_.is_filled(block, 0xEE));
      free_.push_back(block);
    }
  }
  void forget_if_over(std::map<TransferId, Job>::iterator it) {
    if (!it->second.open.empty()) return;
    EXPECT_FALSE(engine_.append(it->first, {}));
    jobs_.erase(it);
  }
  void take_back() {
    const auto it = some_job();
    if (it == jobs_.end()) return;
    const auto n = static_cast<int32_t>(random_() % 5);
    const int32_t n_taken = engine_.take_back(it->first, n);
    EXPECT_LE(n_taken, n);
    take_off(it->second, n_taken);
    forget_if_over(it);
  }
  void end() {
    const auto it = some_job();
    if (it == jobs_.end()) return;
    take_off(it->second, engine_.end(it->first));
    EXPECT_EQ(engine_.n_waiting(it->first), 0);
    it->second.is_ended = true;
    forget_if_over(it);
  }
  void offload() {
    if (free_.empty()) return;
    const int32_t block = take_free();
    const int32_t number = n_keys_++;
    const TierKind to = random_() % 2 == 0 ? TierKind::kHost : TierKind::kSsd;
    EXPECT_TRUE(engine_.offload(record_of(number), BlockId(block), to));
    offloads_.emplace(number, block);
  }
  void poll() {
    {
      std::lock_guard lock(mutex_);
      has_news_ = false;
    }
    const std::vector<TransferDone> done = engine_.poll();
    if (!done.empty()) ++n_polls_with_news_;
    for (const TransferDone& one : done) one.is_restore ? told_restore(one) : told_offload(one);
    n_told_ += static_cast<int64_t>(done.size());
  }
  void told_restore(const TransferDone& one) {
    const auto it = jobs_.find(one.id);
    ASSERT_NE(it, jobs_.end());
    auto& open = it->second.open;
    const auto at = std::find(open.begin(), open.end(),
                              std::pair<int32_t, int32_t>(one.index, one.block.value()));
    ASSERT_NE(at, open.end());
    if (one.status.ok()) {
      EXPECT_TRUE(device_.is_filled(at->second, byte_of(one.key)));
    }
    free_.push_back(at->second);
    open.erase(at);
    if (open.empty()) forget_if_over(it);
  }
  void told_offload(const TransferDone& one) {
    const auto it = offloads_.find(number_of(one.key));
    ASSERT_NE(it, offloads_.end());
    EXPECT_EQ(it->second, one.block.value());
    free_.push_back(it->second);
    offloads_.erase(it);
  }

  std::mt19937 random_;
  Device device_;
  base::SystemClock clock_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool has_news_ = false;  // guarded by mutex_
  int64_t n_wakes_ = 0;    // guarded by mutex_
  std::vector<int32_t> free_;
  std::map<TransferId, Job> jobs_;
  std::map<int32_t, int32_t> offloads_;  // key to block
  int32_t n_keys_ = 0;
  int64_t n_told_ = 0;
  int64_t n_taken_ = 0;
  int64_t n_polls_with_news_ = 0;
  ThreadedTier tiers_;
  TransferEngine engine_;
};

TEST(TransferThreadTest, EveryBlockIsToldOnceOrTakenBack) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Stress stress(seed);
    stress.run(2000);
    if (HasFailure()) return;
  }
}

TEST(TransferThreadTest, TheDestructorWaitsForWhatIsUnderWay) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    Device device(100);
    base::SystemClock clock;
    ThreadedTier tier(3, seed, 20);
    auto n_wakes = std::make_unique<std::atomic<int>>(0);
    auto engine =
        std::make_unique<TransferEngine>(TransferOptions{}, device.memory(), tier.tier(),
                                         tier.tier(), clock, [count = n_wakes.get()] { ++*count; });
    engine->restore(blocks_of(0, 50));
    for (int32_t i = 50; i < 60; ++i) engine->offload(record_of(i), BlockId(i), TierKind::kHost);
    for (uint32_t i = 0; i < seed % 7; ++i) engine->poll();
    engine.reset();
    n_wakes.reset();
    EXPECT_EQ(tier.n_open(), 0);
  }
}

}  // namespace
}  // namespace pagoda::cache
