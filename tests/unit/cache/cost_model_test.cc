#include "cache/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace pagoda::cache {
namespace {

constexpr auto kHost = static_cast<size_t>(TierKind::kHost);
constexpr auto kSsd = static_cast<size_t>(TierKind::kSsd);

RestoreQuestion question_of(int32_t begin, int32_t end, int32_t n_host, int32_t n_ssd) {
  RestoreQuestion question;
  question.begin = begin;
  question.end = end;
  question.n_blocks[kHost] = n_host;
  question.n_blocks[kSsd] = n_ssd;
  return question;
}

// 100 us a row at every length; a block of several from the SSD in 1000 us and one alone in 2000,
// from the host in 10 and 20.
CostModel steady_model(RestorePolicy policy) {
  CostModel model(policy);
  model.observe_prefill(0, 512, 51'200);
  model.observe_restore(TierKind::kSsd, 10, 10'000, 2'000);
  model.observe_restore(TierKind::kHost, 10, 100, 20);
  return model;
}

TEST(CostModelTest, RatesAreThoseOfWhatWasSeen) {
  const CostModel model = steady_model(RestorePolicy::kAuto);
  EXPECT_DOUBLE_EQ(model.prefill_s(0, 100), 0.01);
  EXPECT_DOUBLE_EQ(model.prefill_s(100'000, 100'100), 0.01);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kSsd, 1), 0.002);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kSsd, 2), 0.002);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kSsd, 5), 0.005);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kHost, 5), 0.00005);
  EXPECT_EQ(model.restore_s(TierKind::kSsd, 0), 0);
  EXPECT_EQ(model.prefill_s(7, 7), 0);
  EXPECT_EQ(model.prefill_s(8, 7), 0);
}

TEST(CostModelTest, WhatWasNotMeasuredLiesBetweenItsNeighbours) {
  CostModel model(RestorePolicy::kAuto);
  model.observe_prefill(0, 512, 512 * 100);       // below 512
  model.observe_prefill(2048, 2048, 2048 * 300);  // [2048, 4096)
  EXPECT_DOUBLE_EQ(model.prefill_s(0, 512), 512 * 100e-6);
  EXPECT_DOUBLE_EQ(model.prefill_s(2048, 4096), 2048 * 300e-6);
  const double second = model.prefill_s(512, 1024) / 512;
  const double third = model.prefill_s(1024, 2048) / 1024;
  EXPECT_GT(second, 100e-6);
  EXPECT_GT(third, second);
  EXPECT_LT(third, 300e-6);
  EXPECT_DOUBLE_EQ(model.prefill_s(100'000, 100'001), 300e-6);
  EXPECT_DOUBLE_EQ(model.prefill_s(0, 4096), model.prefill_s(0, 700) + model.prefill_s(700, 4096));
}

TEST(CostModelTest, AnObservationOverSeveralLengthsCountsInEach) {
  CostModel model(RestorePolicy::kAuto);
  model.observe_prefill(0, 2048, 2048 * 50);
  model.observe_prefill(600, 10, 0);
  EXPECT_DOUBLE_EQ(model.prefill_s(0, 512), 512 * 50e-6);
  EXPECT_LT(model.prefill_s(512, 1024), 512 * 50e-6);
  EXPECT_DOUBLE_EQ(model.prefill_s(1024, 2048), 1024 * 50e-6);
}

TEST(CostModelTest, NewObservationsTakeThePlaceOfOldOnes) {
  CostModel model(RestorePolicy::kAuto);
  for (int i = 0; i < 1000; ++i) {
    model.observe_prefill(0, 256, 256 * 1000);
    model.observe_restore(TierKind::kSsd, 9, 81'000, 1000);
  }
  for (int i = 0; i < 50; ++i) {
    model.observe_prefill(0, 256, 256 * 10);
    model.observe_restore(TierKind::kSsd, 9, 900, 100);
  }
  EXPECT_LT(model.prefill_s(0, 1), 450e-6);
  EXPECT_GT(model.prefill_s(0, 1), 10e-6);
  EXPECT_LT(model.restore_s(TierKind::kSsd, 9), 0.4 * 81e-3);
  EXPECT_GT(model.restore_s(TierKind::kSsd, 9), 0.9e-3);
  for (int i = 0; i < 1000; ++i) model.observe_prefill(0, 256, 256 * 10);
  EXPECT_NEAR(model.prefill_s(0, 1), 10e-6, 1e-9);
}

TEST(CostModelTest, NonsenseIsNotObserved) {
  CostModel model = steady_model(RestorePolicy::kAuto);
  model.observe_prefill(0, 0, 100);
  model.observe_prefill(-1, 10, 100);
  model.observe_prefill(0, 10, -100);
  model.observe_restore(TierKind::kSsd, 0, 100, 10);
  model.observe_restore(TierKind::kSsd, 5, -1, 10);
  EXPECT_DOUBLE_EQ(model.prefill_s(0, 100), 0.01);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kSsd, 5), 0.005);
  // The first of several can't take longer than all.
  model.observe_restore(TierKind::kSsd, 2, 100, 1'000'000);
  EXPECT_LT(model.restore_s(TierKind::kSsd, 5), 0.005);
}

TEST(CostModelTest, BlocksThatCameAloneArePricedAlone) {
  CostModel model(RestorePolicy::kAuto);
  model.observe_restore(TierKind::kHost, 1, 70, 70);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kHost, 1), 70e-6);
  EXPECT_DOUBLE_EQ(model.restore_s(TierKind::kHost, 10), 700e-6);
}

TEST(CostModelTest, RestoresUntilBothSidesAreMeasured) {
  CostModel model(RestorePolicy::kAuto);
  RestoreQuestion question = question_of(0, 1600, 0, 100);
  question.n_queued[kSsd] = 1'000'000;
  EXPECT_EQ(model.decide(question).split, 0);
  model.observe_prefill(0, 512, 1);
  EXPECT_EQ(model.decide(question).split, 0);
  EXPECT_GT(model.decide(question).predicted_s, 0);
  model.observe_restore(TierKind::kHost, 5, 50, 10);
  EXPECT_EQ(model.decide(question).split, 0);  // not the tier in question
  model.observe_restore(TierKind::kSsd, 5, 5'000'000, 1'000'000);
  EXPECT_EQ(model.decide(question).split, 1600);
}

TEST(CostModelTest, TheQuickerSideTakesAll) {
  const CostModel model = steady_model(RestorePolicy::kAuto);
  // 1600 rows in 160 ms against 1 ms: a split would save less than the twentieth.
  const RestoreAnswer from_host = model.decide(question_of(0, 1600, 100, 0));
  EXPECT_EQ(from_host.split, 0);
  EXPECT_DOUBLE_EQ(from_host.predicted_s, from_host.restore_all_s);
  EXPECT_DOUBLE_EQ(from_host.recompute_all_s, 0.16);

  RestoreQuestion question = question_of(0, 1600, 100, 0);
  question.n_queued[kHost] = 100'000;
  const RestoreAnswer computed = model.decide(question);
  EXPECT_EQ(computed.split, 1600);
  EXPECT_DOUBLE_EQ(computed.predicted_s, 0.16);
}

TEST(CostModelTest, ASplitIsWhereBothFinishTogether) {
  const CostModel model = steady_model(RestorePolicy::kAuto);
  // A block computed in 1.6 ms, restored in 1 ms: five of thirteen are computed.
  const RestoreAnswer answer = model.decide(question_of(320, 320 + 16 * 800, 0, 800));
  EXPECT_EQ((answer.split - 320) % 16, 0);
  EXPECT_NEAR((answer.split - 320) / 16, 308, 2);
  EXPECT_NEAR(answer.predicted_s, 0.4928, 0.003);
  EXPECT_NEAR(answer.restore_all_s, 0.8, 1e-9);
  EXPECT_NEAR(answer.recompute_all_s, 1.28, 1e-9);
}

TEST(CostModelTest, QueuesMoveTheSplit) {
  const CostModel model = steady_model(RestorePolicy::kAuto);
  RestoreQuestion question = question_of(0, 16 * 800, 0, 800);
  const int32_t plain = model.decide(question).split;
  question.n_queued[kHost] = 10'000;  // the same 100 ms, by the window that all share
  const int32_t behind_restores = model.decide(question).split;
  EXPECT_GT(behind_restores, plain);
  question.n_rows_queued = 4000;
  EXPECT_LT(model.decide(question).split, behind_restores);
  question.n_rows_queued = 1'000'000;
  EXPECT_EQ(model.decide(question).split, 0);
}

TEST(CostModelTest, TheBackOfAStretchIsTheSlowerTiers) {
  const CostModel model = steady_model(RestorePolicy::kAuto);
  // 700 blocks of the host in front cost next to nothing, and none of them is worth computing; the
  // SSD's 100 are at the back, so computing would have to pass all of the host's to save any.
  const RestoreAnswer answer = model.decide(question_of(0, 16 * 800, 700, 100));
  EXPECT_EQ(answer.split, 0);
  EXPECT_NEAR(answer.restore_all_s, 0.107, 1e-9);
}

TEST(CostModelTest, ThePolicyCanForceEither) {
  const RestoreQuestion question = question_of(160, 16 * 800, 0, 790);
  const RestoreAnswer restored = steady_model(RestorePolicy::kRestore).decide(question);
  EXPECT_EQ(restored.split, 160);
  EXPECT_DOUBLE_EQ(restored.predicted_s, restored.restore_all_s);
  EXPECT_GT(restored.recompute_all_s, 0);
  const RestoreAnswer computed = steady_model(RestorePolicy::kRecompute).decide(question);
  EXPECT_EQ(computed.split, 16 * 800);
  EXPECT_DOUBLE_EQ(computed.predicted_s, computed.recompute_all_s);
  EXPECT_GT(computed.restore_all_s, 0);
}

TEST(CostModelTest, NothingToRestoreIsComputed) {
  for (const auto policy :
       {RestorePolicy::kAuto, RestorePolicy::kRestore, RestorePolicy::kRecompute}) {
    const CostModel model = steady_model(policy);
    EXPECT_EQ(model.decide(question_of(16, 64, 0, 0)).split, 64);
    EXPECT_EQ(model.decide(question_of(64, 64, 0, 0)).split, 64);
    EXPECT_EQ(model.decide(question_of(64, 64, 0, 0)).predicted_s, 0);
  }
}

// What a caller could work out with the model's own public predictions.
struct BruteForce {
  const CostModel& model;
  const RestoreQuestion& question;
  double behind_rows_s;    // what waits before ours
  double behind_blocks_s;  // the same

  BruteForce(const CostModel& model, const RestoreQuestion& question)
      : model(model), question(question) {
    const RestoreAnswer answer = model.decide(question);
    behind_rows_s = answer.recompute_all_s - model.prefill_s(question.begin, question.end);
    behind_blocks_s = answer.restore_all_s -
                      model.restore_s(TierKind::kHost, question.n_blocks[kHost]) -
                      model.restore_s(TierKind::kSsd, question.n_blocks[kSsd]);
  }
  double seconds(int32_t split) const {
    const int32_t n_last = (question.end - split) / question.block_size;
    const int32_t n_ssd = std::min(n_last, question.n_blocks[kSsd]);
    double computing = 0;
    double restoring = 0;
    if (split > question.begin) computing = behind_rows_s + model.prefill_s(question.begin, split);
    if (n_last > 0) {
      restoring = behind_blocks_s + model.restore_s(TierKind::kSsd, n_ssd) +
                  model.restore_s(TierKind::kHost, n_last - n_ssd);
    }
    return std::max(computing, restoring);
  }
  double best() const {
    double best = seconds(question.begin);
    for (int32_t split = question.begin; split <= question.end; split += question.block_size) {
      best = std::min(best, seconds(split));
    }
    return best;
  }
};

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  int32_t below(int32_t n) { return std::uniform_int_distribution<int32_t>(0, n - 1)(random_); }
  // From 1 to 10^digits, each magnitude as likely as the other.
  int64_t magnitude(double digits) {
    const double exponent = std::uniform_real_distribution<double>(0, digits)(random_);
    return static_cast<int64_t>(std::pow(10.0, exponent));
  }

 private:
  std::mt19937 random_;
};

CostModel random_model(Dice& dice) {
  CostModel model(RestorePolicy::kAuto);
  const int32_t n_prefills = 1 + dice.below(30);
  const int64_t row_us = dice.magnitude(4);
  for (int32_t i = 0; i < n_prefills; ++i) {
    const int32_t n_rows = 1 + dice.below(2048);
    const int32_t position = dice.below(2) == 0 ? 0 : dice.below(200'000);
    model.observe_prefill(position, n_rows, n_rows * row_us * (50 + dice.below(100)) / 100);
  }
  for (const TierKind tier : {TierKind::kHost, TierKind::kSsd}) {
    const int64_t block_us = dice.magnitude(6);
    const int64_t first_us = dice.magnitude(6);
    for (int32_t i = 0, n = 1 + dice.below(10); i < n; ++i) {
      const int32_t n_blocks = 1 + dice.below(100);
      model.observe_restore(tier, n_blocks, first_us + (n_blocks - 1) * block_us, first_us);
    }
  }
  return model;
}

TEST(CostModelTest, ADecisionIsNeverMuchWorseThanTheBestOfAllSplits) {
  int n_restored = 0;
  int n_computed = 0;
  int n_split = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    Dice dice(seed);
    const CostModel model = random_model(dice);
    const int32_t n_blocks = 1 + dice.below(dice.below(2) == 0 ? 8 : 500);
    RestoreQuestion question;
    question.block_size = 16 << dice.below(3);
    question.begin = question.block_size * dice.below(200);
    question.end = question.begin + question.block_size * n_blocks;
    const int32_t tiers = dice.below(3);
    const int32_t n_host = tiers == 0 ? 0 : tiers == 1 ? n_blocks : dice.below(n_blocks + 1);
    question.n_blocks[kHost] = n_host;
    question.n_blocks[kSsd] = n_blocks - n_host;
    if (dice.below(2) == 0) question.n_queued[kHost] = dice.below(300);
    if (dice.below(2) == 0) question.n_queued[kSsd] = dice.below(300);
    if (dice.below(2) == 0) question.n_rows_queued = dice.below(10'000);

    const RestoreAnswer answer = model.decide(question);
    const BruteForce brute(model, question);
    const double best = brute.best();
    ASSERT_TRUE(std::isfinite(answer.predicted_s)) << seed;
    ASSERT_GE(answer.split, question.begin) << seed;
    ASSERT_LE(answer.split, question.end) << seed;
    ASSERT_EQ((answer.split - question.begin) % question.block_size, 0) << seed;
    ASSERT_NEAR(answer.predicted_s, brute.seconds(answer.split), 1e-9 + 1e-9 * best) << seed;
    ASSERT_LE(answer.predicted_s, best * 1.05 * (1 + 1e-9) + 1e-9) << seed;
    ASSERT_LE(answer.predicted_s, std::min(answer.restore_all_s, answer.recompute_all_s)) << seed;
    n_restored += answer.split == question.begin;
    n_computed += answer.split == question.end;
    n_split += answer.split != question.begin && answer.split != question.end;
  }
  EXPECT_GT(n_restored, 300);
  EXPECT_GT(n_computed, 300);
  EXPECT_GT(n_split, 300);
}

// Of six groups each column of blocks has six; a window group may have fewer.
TEST(CostModelTest, BlocksOfSeveralGroupsAndOddEndsStayWithinTheStretch) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    Dice dice(seed);
    const CostModel model = random_model(dice);
    RestoreQuestion question;
    question.begin = dice.below(1000);
    question.end = question.begin + dice.below(5000);
    question.n_blocks[kHost] = dice.below(2000);
    question.n_blocks[kSsd] = dice.below(2000);
    const RestoreAnswer answer = model.decide(question);
    ASSERT_GE(answer.split, question.begin) << seed;
    ASSERT_LE(answer.split, question.end) << seed;
    if (answer.split != question.begin && answer.split != question.end) {
      ASSERT_EQ(answer.split % 16, 0) << seed;
    }
    for (const double s : {answer.predicted_s, answer.restore_all_s, answer.recompute_all_s}) {
      ASSERT_TRUE(std::isfinite(s) && s >= 0) << seed;
    }
  }
}

TEST(CostModelTest, RatesOfZeroAndOfAgesGiveNumbers) {
  for (const int64_t us : {int64_t{0}, int64_t{1} << 60}) {
    for (const int64_t restore_us : {int64_t{0}, int64_t{1} << 60}) {
      CostModel model(RestorePolicy::kAuto);
      for (int i = 0; i < 10'000; ++i) {
        model.observe_prefill(i * 16, 1, us);
        model.observe_restore(TierKind::kSsd, 2, restore_us, restore_us / 2);
      }
      RestoreQuestion question = question_of(0, 1'000'000, 0, 62'500);
      question.n_rows_queued = 1 << 30;
      question.n_queued[kSsd] = 1 << 30;
      const RestoreAnswer answer = model.decide(question);
      for (const double s : {answer.predicted_s, answer.restore_all_s, answer.recompute_all_s}) {
        EXPECT_TRUE(std::isfinite(s) && s >= 0);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::cache
