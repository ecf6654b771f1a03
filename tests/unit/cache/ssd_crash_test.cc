// The SSD tier under random load: power failures at random calls of the disk, and many threads.
// Whatever a get answers with OK is what was put (the fixture compares), what was put and synced is
// found again unless the tier said that it is lost, and what was dropped and synced is nowhere.
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/io_queue.h"
#include "tests/unit/cache/ssd_fixture.h"

namespace pagoda::cache {
namespace {

using base::DiskOp;

int32_t id_of(const BlockKey& key) {
  int32_t id = 0;
  std::memcpy(&id, key.data(), sizeof id);
  return id;
}

class SsdCrashTest : public SsdTierTest {
 protected:
  static constexpr int32_t kIds = 60;
  static constexpr int32_t kSalts = 5;

  // With gets the cleaner rewrites blocks, and what it rewrites is durable again only a sync later.
  struct Round {
    bool has_gets = false;
  };

  void seed(uint64_t seed) { random_.seed(seed); }
  uint64_t pick(uint64_t n) { return random_() % n; }
  int32_t salt_of(int32_t id) const { return id % kSalts; }

  // Power fails at one of the calls to come, whatever is under way then.
  void arm() {
    calls_left_ = 10 + pick(400);
    has_crashed_ = false;
    disk.set_hook([this](DiskOp, const std::string&, int64_t) {
      if (has_crashed_ || --calls_left_ > 0) return;
      has_crashed_ = true;
      disk.crash(random_());
    });
  }

  void forget(int32_t id) {
    durable_.erase(id);
    written_.erase(id);
  }
  void take_lost() {
    for (const BlockKey& key : tier().take_lost()) forget(id_of(key));
  }

  // A key that is lost and put again meanwhile would not be told.
  void pump(uint64_t pick) {
    queue.pump_one(pick);
    take_lost();
  }

  void begin_put(int32_t id) {
    erased_.erase(id);
    dropped_.erase(id);
    auto block = std::make_shared<std::vector<uint8_t>>(test_block(id));
    const uint64_t n_drops = n_drops_[id];
    tier().put(test_record(id, id - 1, salt_of(id)), *block,
               [this, id, block, n_drops](const absl::Status& status) {
                 // One that found another on its way was told so before that one failed.
                 if (!status.ok()) written_.erase(id);
                 // And one that found it there, before that was lost.
                 if (!tier().contains(test_key(id))) return;
                 if (status.ok() && n_drops == n_drops_[id]) written_.insert(id);
               });
  }
  void begin_get(int32_t id) {
    auto into = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(kTestBlockBytes));
    tier().get(test_key(id), *into, [id, into](const absl::Status& status) {
      EXPECT_TRUE(!status.ok() || *into == test_block(id)) << id;
    });
  }
  void begin_drop(int32_t id) {
    tier().drop(test_key(id));
    note_drop(id);
  }
  void begin_drop_salt(int32_t salt) {
    tier().drop_salt(test_salt(salt));
    for (int32_t id = 0; id < kIds; ++id) {
      if (salt_of(id) == salt) note_drop(id);
    }
  }
  void note_drop(int32_t id) {
    forget(id);
    ++n_drops_[id];
    dropped_.insert(id);
  }
  void begin_sync() {
    tier().sync([this, written = written_, dropped = dropped_,
                 n_drops = n_drops_](const absl::Status& status) mutable {
      // The power failed before it was told: it may tell of what was durable by then.
      if (!status.ok() || has_crashed_) return;
      for (const int32_t id : written) {
        if (written_.contains(id) && n_drops[id] == n_drops_[id]) durable_.insert(id);
      }
      for (const int32_t id : dropped) {
        if (dropped_.contains(id) && n_drops[id] == n_drops_[id]) erased_.insert(id);
      }
    });
  }

  void step(const Round& round) {
    const int32_t id = static_cast<int32_t>(pick(kIds));
    const uint64_t what = pick(100);
    if (what < 40) {
      begin_put(id);
    } else if (what < 55 && round.has_gets) {
      begin_get(id);
    } else if (what < 60 && round.has_gets) {
      tier().touch(test_key(id));
    } else if (what < 66) {
      begin_drop(id);
    } else if (what < 67) {
      begin_drop_salt(salt_of(id));
    } else if (what < 75) {
      begin_sync();
    } else {
      for (uint64_t i = pick(20); i > 0 && queue.queued() > 0; --i) pump(random_());
    }
  }

  void check_after_crash(const Round& round) {
    if (round.has_gets) durable_.clear();
    disk.set_hook(nullptr);
    // What the old tier lost as it cleaned; its other errors come from the power failure.
    while (queue.queued() > 0) pump(0);
    close();
    open_and_scan();
    for (const int32_t id : durable_) EXPECT_TRUE(tier().contains(test_key(id))) << id;
    for (const int32_t id : erased_) {
      EXPECT_FALSE(tier().contains(test_key(id))) << id;
      EXPECT_FALSE(has_tokens(id)) << id;
    }
    for (int32_t id = 0; id < kIds; ++id) {
      const absl::Status status = get(id);
      EXPECT_TRUE(status.ok() || !durable_.contains(id)) << id << " " << status;
      written_.erase(id);
      if (status.ok()) written_.insert(id);
    }
    // Those gets made all of them hot; a restart forgets that.
    reopen();
    // What survived is durable, and what is dropped and came back may do so again.
    durable_ = written_;
    std::erase_if(dropped_, [&](int32_t id) { return !erased_.contains(id); });
  }

  void run(const Round& round) {
    options.capacity_bytes = 5 * kTestSegmentBytes;
    open();
    for (int32_t n_crashes = 0; n_crashes < 3; ++n_crashes) {
      arm();
      // One that doesn't come fails the power at rest.
      for (int32_t i = 0; i < 600 && !has_crashed_; ++i) step(round);
      if (!std::exchange(has_crashed_, true)) disk.crash(random_());
      check_after_crash(round);
      if (HasFailure()) return;
    }
    durable_.clear();
    written_.clear();
    erased_.clear();
    dropped_.clear();
  }

 private:
  std::mt19937_64 random_;
  uint64_t calls_left_ = 0;
  bool has_crashed_ = false;
  std::set<int32_t> written_;  // put said so, and nothing was said of a loss
  std::set<int32_t> durable_;  // and a sync after that
  std::set<int32_t> dropped_;  // and not put again
  std::set<int32_t> erased_;   // and a sync after that
  std::map<int32_t, uint64_t> n_drops_;
};

TEST_F(SsdCrashTest, WhatWasSyncedIsFoundAgain) {
  for (uint64_t n = 1; n <= 200 && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    SsdCrashTest::seed(n);
    run({.has_gets = false});
    close();
    for (const std::string& name : segments()) ASSERT_TRUE(disk.remove(name).ok());
  }
}

TEST_F(SsdCrashTest, NothingIsWrongAsHotBlocksMove) {
  for (uint64_t n = 1001; n <= 1200 && !HasFailure(); ++n) {
    SCOPED_TRACE(n);
    SsdCrashTest::seed(n);
    run({.has_gets = true});
    close();
    for (const std::string& name : segments()) ASSERT_TRUE(disk.remove(name).ok());
  }
}

// Errors of one call in ten: everything ends, and nothing is wrong.
TEST_F(SsdCrashTest, NothingIsWrongOnAFailingDisk) {
  options.capacity_bytes = 5 * kTestSegmentBytes;
  SsdCrashTest::seed(5);
  std::mt19937_64 faults(6);
  open_and_scan();
  disk.set_fail([&](DiskOp, const std::string&, int64_t) {
    return faults() % 10 == 0 ? absl::UnavailableError("a fault") : absl::OkStatus();
  });
  for (int32_t i = 0; i < 5000; ++i) {
    step({.has_gets = true});
    clock.advance_us(100'000);
  }
  queue.pump_all();
  disk.set_fail(nullptr);
  clock.advance_us(600'000'000);
  EXPECT_TRUE(put(1000).ok());
  EXPECT_TRUE(get(1000).ok());
  EXPECT_TRUE(sync().ok());
}

TEST(SsdTierThreads, AnyThreadMayCall) {
  constexpr int32_t kThreads = 4;
  constexpr int32_t kOps = 400;
  base::MemoryDisk disk;
  base::SystemClock clock;
  SsdTierOptions options = test_options();
  options.capacity_bytes = 5 * kTestSegmentBytes;
  options.read_limit_bytes_s = int64_t{1} << 40;
  for (int32_t start = 0; start < 2; ++start) {
    std::atomic<int32_t> n_calls = 0;
    std::atomic<int32_t> n_done = 0;
    {
      base::ThreadIoQueue queue(3);
      const auto tier = *SsdTier::open(options, disk, queue, clock);
      std::vector<std::thread> threads;
      for (int32_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          std::mt19937 random(static_cast<uint32_t>(t));
          for (int32_t i = 0; i < kOps; ++i) {
            const int32_t id = static_cast<int32_t>(random() % 80);
            const int32_t what = static_cast<int32_t>(random() % 100);
            auto block = std::make_shared<std::vector<uint8_t>>(test_block(id));
            if (what < 50) {
              ++n_calls;
              tier->put(test_record(id, id - 1, id % 5), *block,
                        [block, &n_done](const absl::Status&) { ++n_done; });
            } else if (what < 90) {
              ++n_calls;
              std::ranges::fill(*block, uint8_t{0});
              tier->get(test_key(id), *block, [block, id, &n_done](const absl::Status& status) {
                EXPECT_TRUE(!status.ok() || *block == test_block(id));
                ++n_done;
              });
            } else if (what < 95) {
              tier->drop(test_key(id));
            } else if (what < 96) {
              tier->drop_salt(test_salt(id % 5));
            } else if (what < 97) {
              ++n_calls;
              tier->sync([&n_done](const absl::Status&) { ++n_done; });
            } else {
              tier->take_found();
              tier->take_lost();
              tier->ssd_stats();
            }
            if (t == 0 && i == kOps / 2) tier->purge();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(n_done.load(), n_calls.load());
  }
}

}  // namespace
}  // namespace pagoda::cache
