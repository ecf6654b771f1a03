#include "server/client/samples.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagoda::client {
namespace {

TEST(Samples, PercentilesByHand) {
  const std::vector<double> five = {1, 2, 3, 4, 10};
  EXPECT_DOUBLE_EQ(percentile(five, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(five, 0.5), 3);
  EXPECT_DOUBLE_EQ(percentile(five, 0.9), 4 + 0.6 * 6);
  EXPECT_DOUBLE_EQ(percentile(five, 1), 10);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{7}, 0.99), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 0.5), 0);
}

TEST(Samples, SummaryOfValuesInAnyOrder) {
  Samples samples;
  EXPECT_EQ(samples.summary().n, 0);
  for (const double value : {4.0, 1.0, 10.0, 3.0, 2.0}) samples.add(value);
  const SampleSummary summary = samples.summary();
  EXPECT_EQ(summary.n, 5);
  EXPECT_DOUBLE_EQ(summary.mean, 4);
  EXPECT_DOUBLE_EQ(summary.p50, 3);
  EXPECT_DOUBLE_EQ(summary.max, 10);
  Samples negative;
  negative.add(-2);
  EXPECT_DOUBLE_EQ(negative.summary().max, -2);
}

TEST(Samples, ALongRunKeepsABoundedShareThatIsDrawnEvenly) {
  Samples samples;
  const int64_t n = 3 * static_cast<int64_t>(Samples::kKept);
  for (int64_t i = 0; i < n; ++i) samples.add(static_cast<double>(i));
  const SampleSummary summary = samples.summary();
  EXPECT_EQ(summary.n, n);
  EXPECT_DOUBLE_EQ(summary.max, static_cast<double>(n - 1));
  EXPECT_NEAR(summary.p50 / static_cast<double>(n), 0.5, 0.01);
  EXPECT_NEAR(summary.p90 / static_cast<double>(n), 0.9, 0.01);
}

}  // namespace
}  // namespace pagoda::client
