#include "base/check.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/ids.h"

namespace pagoda::base {
namespace {

TEST(CheckDeathTest, SaysPlaceAndCondition) {
  const int blocks = 3;
  EXPECT_DEATH(CHECK(blocks == 4), "check_test.cc:[0-9]+: check failed: blocks == 4");
}

TEST(CheckDeathTest, PrintsBothValues) {
  const int used = 7;
  EXPECT_DEATH(CHECK_EQ(used, 8), "used == 8 \\(7 against 8\\)");
  EXPECT_DEATH(CHECK_NE(used, 7), "used != 7 \\(7 against 7\\)");
  EXPECT_DEATH(CHECK_LT(used, 7), "used < 7 \\(7 against 7\\)");
  EXPECT_DEATH(CHECK_LE(used, 6), "used <= 6 \\(7 against 6\\)");
  EXPECT_DEATH(CHECK_GT(used, 7), "used > 7 \\(7 against 7\\)");
  EXPECT_DEATH(CHECK_GE(used, 8), "used >= 8 \\(7 against 8\\)");
}

TEST(CheckDeathTest, PrintsIdsAsTheirNumber) {
  EXPECT_DEATH(CHECK_EQ(BlockId(5), BlockId(9)), "\\(5 against 9\\)");
}

TEST(CheckTest, HoldsQuietlyAndEvaluatesEachSideOnce) {
  int calls = 0;
  CHECK(++calls == 1);
  CHECK_EQ(++calls, 2);
  CHECK_LE(2, ++calls);
  EXPECT_EQ(calls, 3);
}

// A CHECK must be one statement: an else after it belongs to the if before it.
TEST(CheckTest, IsOneStatement) {
  bool reached = false;
  if (reached)
    CHECK(!reached);
  else
    reached = true;
  EXPECT_TRUE(reached);
}

TEST(StatusTest, MessagesAreFormatted) {
  const absl::Status status = invalid_argument("prompt has {} tokens, at most {}", 9, 8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(message_of(status), "prompt has 9 tokens, at most 8");
  EXPECT_EQ(message_of(absl::OkStatus()), "");
}

TEST(StatusTest, MessagesKeepBytesThatEndAString) {
  const std::string odd("a\0b\xff", 4);
  EXPECT_EQ(message_of(status_error(absl::StatusCode::kNotFound, "{}", odd)), odd);
}

absl::StatusOr<std::unique_ptr<int>> boxed(int value) {
  if (value < 0) return invalid_argument("{} is negative", value);
  return std::make_unique<int>(value);
}

absl::StatusOr<int> sum(int a, int b) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> left, boxed(a));
  std::unique_ptr<int> right;
  ASSIGN_OR_RETURN(right, boxed(b));
  return *left + *right;
}

absl::Status checked(int a, bool& reached_end) {
  RETURN_IF_ERROR(boxed(a).status());
  reached_end = true;
  return absl::OkStatus();
}

TEST(StatusTest, MacrosMoveTheValueOrReturnTheFirstError) {
  EXPECT_EQ(*sum(2, 3), 5);
  EXPECT_EQ(message_of(sum(-1, -2).status()), "-1 is negative");
  EXPECT_EQ(message_of(sum(1, -2).status()), "-2 is negative");
  bool reached_end = false;
  EXPECT_FALSE(checked(-4, reached_end).ok());
  EXPECT_FALSE(reached_end);
  EXPECT_TRUE(checked(4, reached_end).ok());
  EXPECT_TRUE(reached_end);
}

}  // namespace
}  // namespace pagoda::base
