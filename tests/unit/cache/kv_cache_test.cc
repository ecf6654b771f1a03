#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace pagoda::cache {
namespace {

std::vector<int32_t> counting(int32_t n, int32_t from = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

KvCacheConfig config(int32_t n_blocks) {
  KvCacheConfig config;
  config.n_blocks = n_blocks;
  return config;
}

// A sequence that computes all of its tokens and ends.
void run(KvCache& cache, const std::vector<int32_t>& tokens, const CacheScope& scope = {}) {
  PrefixLease lease = cache.acquire(scope, tokens, UseCache::kYes);
  ASSERT_TRUE(cache.try_extend(lease, static_cast<int32_t>(tokens.size())));
  cache.commit(lease, tokens, static_cast<int32_t>(tokens.size()));
  cache.check();
  cache.release(std::move(lease));
  cache.check();
}

TEST(KvCache, BlocksGoThroughTheFourStates) {
  KvCache cache(config(8));
  const std::vector<int32_t> tokens = counting(40);
  PrefixLease lease = cache.acquire({}, tokens, UseCache::kYes);
  EXPECT_EQ(cache.stats().n_free, 8);
  ASSERT_TRUE(cache.try_extend(lease, 40));
  EXPECT_EQ(cache.stats().n_promised, 2);  // two whole blocks
  EXPECT_EQ(cache.stats().n_in_use, 1);    // and the rest of 8 tokens
  cache.commit(lease, tokens, 20);
  EXPECT_EQ(cache.stats().n_promised, 1);
  EXPECT_EQ(cache.stats().n_in_use, 2);
  cache.commit(lease, tokens, 40);
  EXPECT_EQ(cache.stats().n_promised, 0);
  cache.release(std::move(lease));
  EXPECT_EQ(cache.stats().n_cached, 2);
  EXPECT_EQ(cache.stats().n_free, 6);
  cache.check();
}

TEST(KvCache, HitLeavesOneTokenToCompute) {
  KvCache cache(config(8));
  run(cache, counting(32));
  EXPECT_EQ(cache.probe({}, counting(32), UseCache::kYes).cached_len, 16);
  EXPECT_EQ(cache.probe({}, counting(33), UseCache::kYes).cached_len, 32);
  EXPECT_EQ(cache.probe({}, counting(33), UseCache::kNo).cached_len, 0);
  EXPECT_EQ(cache.probe({}, counting(1), UseCache::kYes).cached_len, 0);
}

TEST(KvCache, ScopesShareNothing) {
  KvCache cache(config(8));
  run(cache, counting(33));
  EXPECT_EQ(cache.probe({.salt = "s", .adapter = ""}, counting(33), UseCache::kYes).cached_len, 0);
  EXPECT_EQ(cache.probe({.salt = "", .adapter = "a"}, counting(33), UseCache::kYes).cached_len, 0);
}

TEST(KvCache, APromiseIsSeenUntilItIsKeptOrBroken) {
  KvCache cache(config(16));
  const std::vector<int32_t> tokens = counting(50);
  PrefixLease owner = cache.acquire({}, tokens, UseCache::kYes);
  ASSERT_TRUE(cache.try_extend(owner, 50));
  const std::vector<int32_t> follower = counting(45);
  EXPECT_EQ(cache.probe({}, follower, UseCache::kYes).promised_len, 32);
  EXPECT_EQ(cache.probe({.salt = "s", .adapter = ""}, follower, UseCache::kYes).promised_len, 0);
  cache.commit(owner, tokens, 16);
  Probe found = cache.probe({}, follower, UseCache::kYes);
  EXPECT_EQ(found.cached_len, 16);
  EXPECT_EQ(found.promised_len, 32);
  cache.release(std::move(owner));  // broken: what was committed stays
  found = cache.probe({}, follower, UseCache::kYes);
  EXPECT_EQ(found.cached_len, 16);
  EXPECT_EQ(found.promised_len, 16);
  cache.check();
}

TEST(KvCache, ExtendEvictsOnlyWhatNobodyUses) {
  KvCache cache(config(4));
  run(cache, counting(32));
  const std::vector<int32_t> other = counting(64, 100);
  PrefixLease lease = cache.acquire({}, counting(33), UseCache::kYes);
  EXPECT_EQ(lease.ready_len(), 32);
  PrefixLease big = cache.acquire({}, other, UseCache::kYes);
  EXPECT_FALSE(cache.try_extend(big, 48));
  EXPECT_EQ(cache.stats().n_free, 2);  // a failed extend takes nothing
  EXPECT_TRUE(cache.try_extend(big, 32));
  cache.release(std::move(lease));
  EXPECT_TRUE(cache.try_extend(big, 64));
  EXPECT_EQ(cache.stats().n_evicted, 2);
  cache.release(std::move(big));
  cache.check();
}

TEST(KvCache, WithoutPrefixCachingEverythingIsFreeAgain) {
  KvCacheConfig off = config(4);
  off.prefix_caching = false;
  KvCache cache(off);
  run(cache, counting(50));
  EXPECT_EQ(cache.stats().n_free, 4);
  EXPECT_EQ(cache.probe({}, counting(50), UseCache::kYes).cached_len, 0);
}

TEST(KvCache, EqualWorkIsKeptOnce) {
  KvCache cache(config(8));
  const std::vector<int32_t> tokens = counting(32);
  PrefixLease a = cache.acquire({}, tokens, UseCache::kYes);
  PrefixLease b = cache.acquire({}, tokens, UseCache::kNo);
  ASSERT_TRUE(cache.try_extend(a, 32));
  ASSERT_TRUE(cache.try_extend(b, 32));
  cache.commit(a, tokens, 32);
  cache.commit(b, tokens, 32);
  EXPECT_EQ(cache.stats().n_twins_dropped, 2);
  EXPECT_EQ(a.tables()[0], b.tables()[0]);
  cache.check();
}

TEST(KvCache, RecomputeIsNotCountedAsAHit) {
  KvCache cache(config(8));
  run(cache, counting(33));
  cache.release(cache.acquire({}, counting(33), UseCache::kRecompute));
  EXPECT_EQ(cache.stats().n_hit_tokens, 0);
  cache.release(cache.acquire({}, counting(33), UseCache::kYes));
  EXPECT_EQ(cache.stats().n_hit_tokens, 32);
}

TEST(KvCacheDeath, ACacheMayNotDieBeforeItsLeases) {
  EXPECT_DEATH(
      {
        auto cache = std::make_unique<KvCache>(config(4));
        PrefixLease lease = cache->acquire({}, counting(3), UseCache::kYes);
        cache.reset();
      },
      "check failed");
}

}  // namespace
}  // namespace pagoda::cache
