#include "base/memory_disk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/check.h"

namespace pagoda::base {
namespace {

using absl::StatusCode;

constexpr uint64_t kSeeds = 300;

DiskBuffer filled(int64_t units, uint8_t byte) {
  DiskBuffer buffer(units * kDiskAlign);
  std::ranges::fill(buffer.span(), byte);
  return buffer;
}

// All bytes of a file; empty when there is none.
std::vector<uint8_t> content(MemoryDisk& disk, const std::string& name) {
  const auto file = disk.open(name);
  if (!file.ok()) return {};
  DiskBuffer buffer((*file)->size().value());
  CHECK((*file)->read(0, buffer.span()).ok());
  return {buffer.span().begin(), buffer.span().end()};
}

std::shared_ptr<DiskFile> durable_file(MemoryDisk& disk, const std::string& name, int64_t units,
                                       uint8_t byte) {
  const auto file = disk.create(name);
  CHECK(file.ok());
  CHECK((*file)->write(0, filled(units, byte).span()).ok());
  CHECK((*file)->sync().ok());
  CHECK(disk.sync_folder().ok());
  return *file;
}

TEST(MemoryDiskTest, WhatWasSyncedSurvivesEveryCrash) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    const auto file = durable_file(disk, "a", 3, 1);
    ASSERT_TRUE(file->write(3 * kDiskAlign, filled(2, 2).span()).ok());
    disk.crash(seed);
    const std::vector<uint8_t> bytes = content(disk, "a");
    ASSERT_GE(bytes.size(), 3u * 4096);
    EXPECT_TRUE(
        std::all_of(bytes.begin(), bytes.begin() + 3 * 4096, [](auto b) { return b == 1; }));
    disk.crash(seed + 1);  // and what a crash left is durable
    EXPECT_EQ(content(disk, "a"), bytes);
  }
}

TEST(MemoryDiskTest, OfUnsyncedUnitsEachIsNewOrOldOrSeldomTorn) {
  constexpr int64_t kUnits = 8;
  std::map<std::string, int> kinds;
  std::map<std::vector<bool>, int> survivors;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    const auto file = durable_file(disk, "a", kUnits, 1);
    ASSERT_TRUE(file->write(0, filled(kUnits, 9).span()).ok());
    ASSERT_TRUE(file->write(0, filled(kUnits, 2).span()).ok());  // only the last one counts
    disk.crash(seed);
    const std::vector<uint8_t> bytes = content(disk, "a");
    ASSERT_EQ(bytes.size(), static_cast<size_t>(kUnits) * 4096);
    std::vector<bool> is_new;
    for (auto at = bytes.begin(); at != bytes.end(); at += 4096) {
      const auto n_new = std::count(at, at + 4096, uint8_t{2});
      EXPECT_EQ(n_new + std::count(at, at + 4096, uint8_t{1}), 4096);
      EXPECT_EQ(n_new % 512, 0);
      EXPECT_TRUE(std::is_sorted(at, at + 4096, std::greater<>()));  // new in front
      kinds[n_new == 0 ? "old" : n_new == 4096 ? "new" : "torn"]++;
      is_new.push_back(n_new > 0);
    }
    survivors[is_new]++;
  }
  const int total = static_cast<int>(kUnits * static_cast<int64_t>(kSeeds));
  EXPECT_NEAR(kinds["old"], total / 2, total / 10);
  EXPECT_NEAR(kinds["new"], total * 7 / 16, total / 10);
  EXPECT_NEAR(kinds["torn"], total / 16, total / 32);
  EXPECT_GT(survivors.size(), 150u);  // of 256: in any combination
}

TEST(MemoryDiskTest, UnsyncedGrowthMayBeLostOrLeaveHoles) {
  std::map<size_t, int> sizes;
  bool saw_hole = false;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    const auto file = durable_file(disk, "a", 1, 1);
    ASSERT_TRUE(file->write(kDiskAlign, filled(3, 2).span()).ok());
    disk.crash(seed);
    const std::vector<uint8_t> bytes = content(disk, "a");
    sizes[bytes.size() / 4096]++;
    saw_hole |= bytes.size() == 4 * 4096 && bytes[4096] == 0 && bytes[3 * 4096] == 2;
  }
  EXPECT_EQ(sizes.size(), 4u);  // 1 … 4
  EXPECT_TRUE(saw_hole);
}

TEST(MemoryDiskTest, NamesOfAnUnsyncedFolderSurviveIndependently) {
  std::map<std::vector<std::string>, int> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    durable_file(disk, "kept", 1, 1);
    durable_file(disk, "removed", 1, 1);
    ASSERT_TRUE(disk.remove("removed").ok());
    ASSERT_TRUE(disk.create("made").ok());
    ASSERT_TRUE(disk.create("brief").ok());
    ASSERT_TRUE(disk.remove("brief").ok());
    disk.crash(seed);
    seen[disk.list().value()]++;
  }
  EXPECT_EQ(seen.size(), 8u);
  for (const auto& [names, n] : seen) EXPECT_TRUE(std::ranges::count(names, "kept") == 1);
}

TEST(MemoryDiskTest, ASyncedFolderKeepsItsNames) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    durable_file(disk, "removed", 1, 1);
    ASSERT_TRUE(disk.remove("removed").ok());
    ASSERT_TRUE(disk.create("made").ok());
    ASSERT_TRUE(disk.sync_folder().ok());
    disk.crash(seed);
    EXPECT_EQ(disk.list().value(), std::vector<std::string>{"made"});
  }
}

TEST(MemoryDiskTest, AReplacedNameIsTheOldFileTheNewOneOrNone) {
  std::map<std::vector<uint8_t>, int> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryDisk disk;
    durable_file(disk, "a", 1, 1);
    ASSERT_TRUE(disk.remove("a").ok());
    const auto file = disk.create("a");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write(0, filled(1, 2).span()).ok());
    ASSERT_TRUE((*file)->sync().ok());
    disk.crash(seed);
    seen[content(disk, "a")]++;
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST(MemoryDiskTest, ACrashIsAFunctionOfItsSeed) {
  const auto after = [](uint64_t seed) {
    MemoryDisk disk;
    const auto file = durable_file(disk, "a", 4, 1);
    CHECK(file->write(0, filled(6, 2).span()).ok());
    CHECK(disk.create("b").ok());
    disk.crash(seed);
    return std::pair(disk.list().value(), content(disk, "a"));
  };
  for (uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(after(seed), after(seed));
  EXPECT_NE(after(1), after(2));
}

TEST(MemoryDiskTest, FilesThatWereOpenAreDeadAfterACrash) {
  MemoryDisk disk;
  const auto file = durable_file(disk, "a", 1, 1);
  disk.crash(1);
  DiskBuffer buffer(kDiskAlign);
  EXPECT_EQ(file->read(0, buffer.span()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(file->write(0, buffer.span()).code(), StatusCode::kUnavailable);
  EXPECT_EQ(file->sync().code(), StatusCode::kUnavailable);
  EXPECT_EQ(file->size().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(disk.open("a").value()->read(0, buffer.span()).ok());
}

TEST(MemoryDiskTest, AFullDiskTakesWhatFits) {
  MemoryDisk disk;
  disk.set_capacity(4 * kDiskAlign);
  const auto file = durable_file(disk, "a", 3, 1);
  EXPECT_EQ(disk.free_bytes().value(), kDiskAlign);
  EXPECT_EQ(file->write(3 * kDiskAlign, filled(2, 2).span()).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(file->size().value(), 4 * kDiskAlign);
  EXPECT_TRUE(file->write(0, filled(4, 3).span()).ok());  // in place
  const auto other = disk.create("b");
  EXPECT_EQ((*other)->write(0, filled(1, 2).span()).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(disk.remove("a").ok());
  EXPECT_TRUE((*other)->write(0, filled(4, 2).span()).ok());
}

TEST(MemoryDiskTest, CallsFailAsToldAndAFailedWriteIsHalfDone) {
  MemoryDisk disk;
  const auto file = durable_file(disk, "a", 4, 1);
  disk.set_fail([](DiskOp op, const std::string& name, int64_t offset) {
    EXPECT_EQ(name, "a");
    if (op == DiskOp::kRead && offset == 0) return absl::OkStatus();
    return status_error(StatusCode::kUnavailable, "{}: broken", name);
  });
  DiskBuffer buffer(kDiskAlign);
  EXPECT_TRUE(file->read(0, buffer.span()).ok());
  EXPECT_EQ(message_of(file->read(kDiskAlign, buffer.span())), "a: broken");
  EXPECT_EQ(message_of(file->sync()), "a: broken");
  EXPECT_EQ(message_of(file->write(0, filled(4, 2).span())), "a: broken");
  disk.set_fail(nullptr);
  const std::vector<uint8_t> bytes = content(disk, "a");
  EXPECT_EQ(std::ranges::count(bytes, uint8_t{2}), 2 * 4096);
}

TEST(MemoryDiskTest, AHookMayCutThePower) {
  MemoryDisk disk;
  const auto file = durable_file(disk, "a", 1, 1);
  int n_calls = 0;
  disk.set_hook([&](DiskOp, const std::string&, int64_t) {
    if (++n_calls == 2) disk.crash(1);
  });
  DiskBuffer buffer(kDiskAlign);
  EXPECT_TRUE(file->read(0, buffer.span()).ok());
  EXPECT_EQ(file->read(0, buffer.span()).code(), StatusCode::kUnavailable);
}

TEST(MemoryDiskTest, RotShows) {
  MemoryDisk disk;
  const auto file = durable_file(disk, "a", 2, 1);
  disk.flip_bit("a", 5000);
  const std::vector<uint8_t> bytes = content(disk, "a");
  EXPECT_EQ(bytes[5000], 0);
  EXPECT_EQ(std::ranges::count(bytes, uint8_t{1}), 2 * 4096 - 1);
  ASSERT_TRUE(file->write(kDiskAlign, filled(1, 2).span()).ok());
  disk.truncate("a", 4500);
  EXPECT_EQ(file->size().value(), 4500);
  DiskBuffer buffer(2 * kDiskAlign);
  EXPECT_EQ(file->read(0, buffer.span()).code(), StatusCode::kOutOfRange);
  for (uint64_t seed = 0; seed < 20; ++seed) disk.crash(seed);
  ASSERT_TRUE(disk.open("a").value()->write(kDiskAlign, filled(1, 3).span()).ok());
  EXPECT_EQ(content(disk, "a").size(), 2u * 4096);
}

TEST(MemoryDiskTest, ThreadsMayUseItAtOnce) {
  MemoryDisk disk;
  durable_file(disk, "shared", 8, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&disk, t] {
      const std::string own = "own" + std::to_string(t);
      DiskBuffer buffer(kDiskAlign);
      for (int i = 0; i < 200; ++i) {
        // A crash of another thread may have come between: a name that is back, a file that is
        // dead.
        if (const auto file = disk.create(own); file.ok()) {
          (*file)->write(i % 8 * kDiskAlign, buffer.span()).IgnoreError();
        }
        if (const auto shared = disk.open("shared"); shared.ok()) {
          (*shared)->read(i % 8 * kDiskAlign, buffer.span()).IgnoreError();
        }
        if (t == 0 && i % 50 == 0) disk.crash(static_cast<uint64_t>(i));
        disk.remove(own).IgnoreError();
        disk.sync_folder().IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(content(disk, "shared").size(), 8u * 4096);
}

}  // namespace
}  // namespace pagoda::base
