#include "server/engine/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagoda::engine {
namespace {

TEST(Admission, CountsRequestsAndBytes) {
  Admission admission(2, 100);
  auto a = admission.try_admit(60);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(admission.try_admit(50).status().code(), absl::StatusCode::kResourceExhausted);
  auto b = admission.try_admit(40);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(admission.try_admit(0).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(admission.n_admitted(), 2);
  AdmissionTicket moved = std::move(a).value();
  { AdmissionTicket dies = std::move(b).value(); }
  EXPECT_EQ(admission.n_admitted(), 1);
  moved = AdmissionTicket();
  EXPECT_EQ(admission.n_admitted(), 0);
}

TEST(Admission, AnEmptyHouseTakesABodyOfAnySize) {
  Admission admission(2, 100);
  const auto ticket = admission.try_admit(1000);
  EXPECT_TRUE(ticket.ok());
  EXPECT_FALSE(admission.try_admit(1).ok());
}

}  // namespace
}  // namespace pagoda::engine
