#include "base/blocking.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/memory_disk.h"

namespace pagoda::base {
namespace {

TEST(Blocking, WaitsOfItsThreadAreCountedInAScope) {
  MemoryDisk disk;
  const auto file = *disk.create("a");
  const int64_t before = n_waits_in_scopes();
  EXPECT_TRUE(file->sync().ok());
  EXPECT_EQ(n_waits_in_scopes(), before);
  {
    const NoWaitScope scope;
    { const NoWaitScope inner; }
    EXPECT_TRUE(file->sync().ok());
    std::thread([&] { EXPECT_TRUE(file->sync().ok()); }).join();
  }
  EXPECT_TRUE(file->sync().ok());
  EXPECT_EQ(n_waits_in_scopes(), before + 1);
}

}  // namespace
}  // namespace pagoda::base
