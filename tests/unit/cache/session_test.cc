#include "cache/session.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "base/memory_disk.h"
#include "base/pumped_io_queue.h"

namespace pagoda::cache {
namespace {

constexpr int64_t kBlockBytes = 4096;
constexpr int32_t kBlocks = 32;

std::vector<int32_t> counting(int32_t n, int32_t from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

// A cache with both tiers, whose copies are made when the test says so.
class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(SsdWrite write = SsdWrite::kReuse, int64_t daily_bytes = 0) {
    host =
        *HostTier::create({.capacity_bytes = 16 * kBlockBytes, .block_bytes = kBlockBytes}, queue);
    SsdTierOptions options;
    options.capacity_bytes = 64 << 20;
    options.reserve_bytes = 0;
    options.daily_bytes = daily_bytes;
    options.block_bytes = kBlockBytes;
    options.block_size = 16;
    ssd = *SsdTier::open(options, disk, queue, clock);
    transfer =
        std::make_unique<TransferEngine>(TransferOptions{}, DeviceMemory{pool.data(), kBlockBytes},
                                         host.get(), ssd.get(), clock, nullptr);
    KvCacheConfig config;
    config.n_blocks = kBlocks;
    config.tiers.transfer = transfer.get();
    config.tiers.host = host.get();
    config.tiers.ssd = ssd.get();
    config.tiers.ssd_write = write;
    cache = std::make_unique<KvCache>(config, &clock);
    SessionOptions times;
    times.idle_host_us = 1000;
    times.idle_ssd_us = 5000;
    table = std::make_unique<SessionTable>(times, *cache, clock);
  }
  ~SessionTest() override {
    table.reset();
    settle();
    cache.reset();
  }

  // A request that computes all of its tokens.
  void turn(const SessionKey& key, const std::vector<int32_t>& tokens,
            const Retention& retention = {}) {
    const CacheScope scope{key.salt, ""};
    table->begin(key, scope, retention);
    PrefixLease lease = cache->acquire(scope, tokens, UseCache::kYes);
    const auto n = static_cast<int32_t>(tokens.size());
    ASSERT_TRUE(cache->try_extend(lease, n));
    cache->commit(lease, tokens, n);
    cache->release(std::move(lease));
    table->end(key, tokens);
    settle();
  }
  // All copies that are under way come to their end, and the table hears of it.
  void settle() {
    for (bool more = true; more;) {
      queue.pump_all();
      more = cache->poll();
      if (table != nullptr) more |= table->tend();
      cache->check();
    }
  }
  void pass(int64_t us) {
    clock.advance_us(us);
    settle();
  }
  std::array<int32_t, 4> where(const SessionKey& key) { return table->find(key)->residency; }

  base::FakeClock clock;
  base::MemoryDisk disk;
  std::vector<uint8_t> pool = std::vector<uint8_t>(kBlocks * kBlockBytes);
  base::PumpedIoQueue queue;
  std::unique_ptr<HostTier> host;
  std::unique_ptr<SsdTier> ssd;
  std::unique_ptr<TransferEngine> transfer;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<SessionTable> table;
  const SessionKey talk{"", "talk"};
};

TEST_F(SessionTest, AnIdleSessionMovesDownAndIsFreedAbove) {
  turn(talk, counting(64));
  EXPECT_EQ(where(talk), (std::array<int32_t, 4>{64, 0, 0, 0}));
  EXPECT_EQ(table->find(talk)->state, SessionState::kDevice);
  pass(1000);
  EXPECT_EQ(table->find(talk)->state, SessionState::kHost);
  EXPECT_EQ(where(talk), (std::array<int32_t, 4>{0, 64, 0, 0}));
  EXPECT_EQ(cache->stats().n_free, kBlocks);
  pass(5000);
  EXPECT_EQ(table->find(talk)->state, SessionState::kSsd);
  EXPECT_EQ(where(talk), (std::array<int32_t, 4>{0, 0, 64, 0}));
  EXPECT_EQ(host->stats().n_blocks, 0);
}

TEST_F(SessionTest, AnActiveOneStaysWhereItIs) {
  turn(talk, counting(64));
  table->begin(talk, {}, {});
  pass(100'000);
  EXPECT_EQ(table->find(talk)->state, SessionState::kActive);
  EXPECT_EQ(where(talk)[0], 64);
  table->end(talk, counting(64));
}

TEST_F(SessionTest, WhatOthersUseIsNotFreed) {
  turn(talk, counting(64));
  const PrefixLease other = cache->acquire({}, counting(40), UseCache::kYes);
  pass(1000);
  EXPECT_EQ(where(talk), (std::array<int32_t, 4>{32, 32, 0, 0}));
}

TEST_F(SessionTest, PrefetchBringsItUpAndIsIdempotent) {
  turn(talk, counting(64));
  pass(10'000);
  ASSERT_EQ(where(talk)[2], 64);
  ASSERT_TRUE(table->prefetch(talk).ok());
  ASSERT_TRUE(table->prefetch(talk).ok());
  EXPECT_TRUE(table->find(talk)->is_moving);
  settle();
  EXPECT_EQ(where(talk)[0], 64);
  EXPECT_FALSE(table->find(talk)->is_moving);
  EXPECT_EQ(cache->stats().n_in_use, 0);
}

TEST_F(SessionTest, WhatComesUpForOneTextIsNotTakenForAnother) {
  turn(talk, counting(64));
  pass(10'000);
  ASSERT_TRUE(table->prefetch(talk).ok());
  table->begin(talk, {}, {});
  table->end(talk, counting(64, 1000));
  settle();
  EXPECT_EQ(cache->residency({}, counting(64, 1000))[0], 0);
  EXPECT_EQ(cache->stats().n_in_use, 0);
}

TEST_F(SessionTest, APinnedOneIsBroughtUpAndStays) {
  turn(talk, counting(64));
  pass(10'000);
  ASSERT_TRUE(table->pin(talk).ok());
  ASSERT_TRUE(table->pin(talk).ok());
  settle();
  EXPECT_EQ(where(talk)[0], 64);
  pass(100'000);
  EXPECT_EQ(where(talk)[0], 64);
  EXPECT_EQ(cache->stats().n_in_use, 4);
  EXPECT_TRUE(absl::IsFailedPrecondition(table->offload(talk)));
  const SessionKey big{"", "big"};
  turn(big, counting(16 * 20, 1000));
  EXPECT_TRUE(absl::IsResourceExhausted(table->pin(big)));  // more than half of the pool
  ASSERT_TRUE(table->unpin(talk).ok());
  EXPECT_EQ(cache->stats().n_in_use, 0);
}

TEST_F(SessionTest, OffloadGoesAllTheWayDown) {
  turn(talk, counting(64));
  ASSERT_TRUE(table->offload(talk).ok());
  settle();
  EXPECT_EQ(where(talk), (std::array<int32_t, 4>{0, 0, 64, 0}));
  ASSERT_TRUE(table->offload(talk).ok());
}

TEST_F(SessionTest, DropErasesWhatIsNotShared) {
  turn(talk, counting(64));
  std::vector<int32_t> other = counting(32);
  for (int32_t i = 0; i < 32; ++i) other.push_back(500 + i);
  turn({"", "other"}, other);
  pass(10'000);
  ASSERT_TRUE(table->drop(talk).ok());
  settle();
  EXPECT_FALSE(table->find(talk).has_value());
  EXPECT_EQ(cache->residency({}, counting(64)), (std::array<int32_t, 4>{0, 0, 32, 32}));
  EXPECT_EQ(where({"", "other"})[2], 64);
  EXPECT_TRUE(absl::IsNotFound(table->drop(talk)));
  const Explanation why = cache->explain({}, counting(65));
  EXPECT_EQ(why.blocks[2].miss, Miss::kEvicted);
  EXPECT_EQ(why.blocks[2].cause, Cause::kDropped);
}

TEST_F(SessionTest, SaltsAreSessionsOfTheirOwn) {
  turn(talk, counting(64));
  turn({"s", "talk"}, counting(32));
  EXPECT_EQ(table->with_id("talk").size(), 2U);
  EXPECT_EQ(table->find({"s", "talk"})->n_tokens, 32);
  EXPECT_EQ(table->list({}, 10).size(), 2U);
  EXPECT_EQ(table->list({"", "talk"}, 10).size(), 1U);
}

TEST_F(SessionTest, ASaltIsErasedInEveryTier) {
  const SessionKey theirs{"s", "talk"};
  turn(talk, counting(64));
  turn(theirs, counting(64));
  pass(10'000);  // both to the SSD
  turn({"s", "late"}, counting(32));
  ASSERT_EQ(where(theirs), (std::array<int32_t, 4>{32, 0, 32, 0}));
  EXPECT_TRUE(table->drop_salt("s"));
  settle();
  EXPECT_FALSE(table->find(theirs).has_value());
  EXPECT_FALSE(table->find({"s", "late"}).has_value());
  EXPECT_EQ(cache->residency({"s", ""}, counting(64)), (std::array<int32_t, 4>{0, 0, 0, 64}));
  EXPECT_EQ(ssd->stats().n_blocks, 4);
  EXPECT_EQ(where(talk)[2], 64);
  EXPECT_TRUE(table->drop_salt("s"));
  EXPECT_TRUE(table->drop_salt("nobody's"));
}

TEST_F(SessionTest, WhatIsUsedOfASaltStaysUntilItIsNot) {
  const SessionKey theirs{"s", "talk"};
  const CacheScope scope{"s", ""};
  turn(theirs, counting(64));
  table->begin(theirs, scope, {});
  PrefixLease lease = cache->acquire(scope, counting(40), UseCache::kYes);
  EXPECT_FALSE(table->drop_salt("s"));
  settle();
  EXPECT_TRUE(table->find(theirs).has_value());
  EXPECT_EQ(cache->residency(scope, counting(64)), (std::array<int32_t, 4>{32, 0, 0, 32}));
  cache->release(std::move(lease));
  table->end(theirs, counting(40));
  settle();
  EXPECT_TRUE(table->drop_salt("s"));
  EXPECT_EQ(cache->stats().n_free, kBlocks);
}

TEST_F(SessionTest, APinDoesNotKeepASalt) {
  const SessionKey theirs{"s", "talk"};
  turn(theirs, counting(64));
  ASSERT_TRUE(table->pin(theirs).ok());
  EXPECT_TRUE(table->drop_salt("s"));
  EXPECT_EQ(cache->stats().n_free, kBlocks);
}

TEST_F(SessionTest, RetentionLastsAsLongAsItWasAskedFor) {
  turn(talk, counting(64), {.priority = 90, .ttl_us = 3000});
  EXPECT_EQ(table->find(talk)->priority, 90);
  pass(3000);
  EXPECT_EQ(table->find(talk)->priority, 50);
}

TEST_F(SessionTest, TheOldestIsForgottenWhenThereAreTooMany) {
  SessionOptions few;
  few.max_sessions = 2;
  table = std::make_unique<SessionTable>(few, *cache, clock);
  turn({"", "a"}, counting(16));
  clock.advance_us(1);
  turn({"", "b"}, counting(16));
  clock.advance_us(1);
  turn({"", "c"}, counting(16));
  EXPECT_EQ(table->size(), 2U);
  EXPECT_FALSE(table->find({"", "a"}).has_value());
  EXPECT_EQ(table->n_by_state()[static_cast<size_t>(SessionState::kDevice)], 2);
}

TEST_F(SessionTest, ExplainSaysWhereAndWhyNot) {
  turn(talk, counting(64));
  turn({"s", "talk"}, counting(32, 700));
  pass(10'000);
  std::vector<int32_t> question = counting(40);
  for (int32_t i = 0; i < 30; ++i) question.push_back(900 + i);
  const Explanation found = cache->explain({}, question);
  EXPECT_EQ(found.n_tokens[static_cast<size_t>(Source::kSsd)], 32);
  EXPECT_EQ(found.parts_at, 40);
  EXPECT_EQ(found.kept_instead.front(), 40);
  EXPECT_EQ(found.blocks[2].miss, Miss::kNoPrefix);
  EXPECT_EQ(found.blocks.back().miss, Miss::kShort);
  EXPECT_EQ(cache->explain({}, counting(40, 700)).blocks[0].miss, Miss::kSalt);
}

class AutoWriteTest : public SessionTest {
 protected:
  AutoWriteTest() : SessionTest(SsdWrite::kAuto, 32 * kBlockBytes) {}
};

TEST_F(AutoWriteTest, WhatIsNotWrittenForWantOfBudgetIsCountedAsSkipped) {
  turn(talk, counting(64));
  ASSERT_FALSE(ssd->has_budget());
  const int64_t n_skipped = cache->stats().n_offloads_skipped;
  const int64_t n_written = ssd->stats().n_blocks;
  EXPECT_GT(n_written, 0);
  turn({"", "late"}, counting(64, 1000));
  EXPECT_EQ(cache->stats().n_offloads_skipped - n_skipped, 4);
  EXPECT_EQ(ssd->stats().n_blocks, n_written);
}

}  // namespace
}  // namespace pagoda::cache
