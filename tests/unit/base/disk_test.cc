#include "base/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/memory_disk.h"
#include "base/posix_disk.h"

namespace pagoda::base {
namespace {

using absl::StatusCode;

DiskBuffer pattern(int64_t bytes, uint8_t seed) {
  DiskBuffer buffer(bytes);
  for (size_t i = 0; i < buffer.span().size(); ++i) {
    buffer.span()[i] = static_cast<uint8_t>(i * 131 + (i >> 8) + seed);
  }
  return buffer;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string folder = std::filesystem::temp_directory_path() / "pagoda_disk_XXXXXX";
    CHECK(::mkdtemp(folder.data()) != nullptr);
    path_ = folder;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

int mode_of(const std::string& path) {
  struct stat info;
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_mode & 0777;
}

TEST(DiskBufferTest, IsAlignedAndRoundedUp) {
  EXPECT_EQ(DiskBuffer().bytes(), 0);
  EXPECT_EQ(DiskBuffer(0).bytes(), 0);
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{368'641}}) {
    DiskBuffer buffer(bytes);
    EXPECT_EQ(buffer.bytes(), disk_align_up(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.span().data()) % 4096, 0u);
    std::ranges::fill(buffer.span(), uint8_t{7});
    const DiskBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.span()[static_cast<size_t>(bytes) - 1], 7);
  }
}

// The same promises for every disk.
class DiskTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      auto disk = PosixDisk::open_folder(folder_.path("kv"));
      ASSERT_TRUE(disk.ok()) << disk.status();
      disk_ = *std::move(disk);
    } else {
      disk_ = std::make_unique<MemoryDisk>();
    }
  }

  TemporaryFolder folder_;
  std::unique_ptr<Disk> disk_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, DiskTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Posix" : "Memory"; });

TEST_P(DiskTest, ReadsWhatWasWrittenAlsoWhenOpenedAgain) {
  DiskBuffer all = pattern(5 * kDiskAlign, 1);
  {
    const auto file = disk_->create("a");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->write(0, all.span()).ok());
    const DiskBuffer middle = pattern(kDiskAlign, 9);
    ASSERT_TRUE((*file)->write(2 * kDiskAlign, middle.span()).ok());
    std::ranges::copy(middle.span(), all.span().begin() + 2 * kDiskAlign);
    EXPECT_TRUE((*file)->sync().ok());
    EXPECT_TRUE(disk_->sync_folder().ok());
  }
  const auto file = disk_->open("a");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size().value(), 5 * kDiskAlign);
  DiskBuffer back(5 * kDiskAlign);
  ASSERT_TRUE((*file)->read(0, back.span()).ok());
  EXPECT_TRUE(std::ranges::equal(back.span(), all.span()));
  EXPECT_TRUE((*file)->read(0, {}).ok());
}

TEST_P(DiskTest, AWriteBehindTheEndLeavesZerosBetween) {
  const auto file = disk_->create("a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write(3 * kDiskAlign, pattern(kDiskAlign, 1).span()).ok());
  DiskBuffer back(3 * kDiskAlign);
  ASSERT_TRUE((*file)->read(0, back.span()).ok());
  EXPECT_TRUE(std::ranges::all_of(back.span(), [](uint8_t byte) { return byte == 0; }));
}

TEST_P(DiskTest, AReadPastTheEndIsOutOfRangeAndNamesTheFile) {
  const auto file = disk_->create("short");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write(0, pattern(2 * kDiskAlign, 1).span()).ok());
  DiskBuffer back(2 * kDiskAlign);
  for (const int64_t offset : {kDiskAlign, 2 * kDiskAlign, 100 * kDiskAlign}) {
    const absl::Status status = (*file)->read(offset, back.span());
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_NE(message_of(status).find("short"), std::string::npos) << status;
  }
  EXPECT_TRUE((*file)->read(0, back.span()).ok());
}

TEST_P(DiskTest, NamesComeAndGo) {
  for (const char* name : {"b", "a", "c"}) ASSERT_TRUE(disk_->create(name).ok());
  EXPECT_EQ(disk_->list().value(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(disk_->create("b").status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(disk_->remove("b").ok());
  EXPECT_EQ(disk_->list().value(), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(disk_->remove("b").code(), StatusCode::kNotFound);
  const absl::Status missing = disk_->open("b").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(message_of(missing).find("b"), std::string::npos);
  EXPECT_TRUE(disk_->create("b").ok());
}

TEST_P(DiskTest, AnOpenFileOutlivesItsNameAndTheDisk) {
  const auto file = disk_->create("a");
  ASSERT_TRUE(file.ok());
  const DiskBuffer bytes = pattern(kDiskAlign, 1);
  ASSERT_TRUE((*file)->write(0, bytes.span()).ok());
  ASSERT_TRUE(disk_->remove("a").ok());
  const auto other = disk_->create("a");  // another file of the same name
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->size().value(), 0);
  disk_.reset();
  DiskBuffer back(kDiskAlign);
  ASSERT_TRUE((*file)->read(0, back.span()).ok());
  EXPECT_TRUE(std::ranges::equal(back.span(), bytes.span()));
}

TEST_P(DiskTest, FreeBytesArePositive) { EXPECT_GT(disk_->free_bytes().value(), 0); }

TEST_P(DiskTest, WhatIsNotAlignedOrNoNameIsAFaultOfTheProgram) {
  const auto file = disk_->create("a");
  ASSERT_TRUE(file.ok());
  DiskBuffer buffer(2 * kDiskAlign);
  EXPECT_DEATH((*file)->write(512, buffer.span()).IgnoreError(), "check failed");
  EXPECT_DEATH((*file)->read(0, buffer.span().first(100)).IgnoreError(), "check failed");
  EXPECT_DEATH((*file)->read(0, buffer.span().subspan(8, 4096)).IgnoreError(), "check failed");
  for (const char* name : {"", ".", "..", "lock", "a/b", "/a"}) {
    EXPECT_DEATH(disk_->create(name).IgnoreError(), "check failed") << name;
  }
}

TEST(PosixDiskTest, TheFolderIsMadeForItsUserAloneAndHeldByOneOwner) {
  const TemporaryFolder folder;
  const std::string path = folder.path("kv");
  const mode_t mask = ::umask(0);
  auto disk = PosixDisk::open_folder(path);
  ASSERT_TRUE(disk.ok()) << disk.status();
  ASSERT_TRUE((*disk)->create("a").ok());
  ::umask(mask);
  EXPECT_EQ(mode_of(path), 0700);
  EXPECT_EQ(mode_of(path + "/a"), 0600);
  EXPECT_EQ(mode_of(path + "/lock"), 0600);

  const absl::Status second = PosixDisk::open_folder(path).status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(message_of(second), path + ": another process is using this folder");
  disk->reset();
  const auto again = PosixDisk::open_folder(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->list().value(), std::vector<std::string>{"a"});
}

TEST(PosixDiskTest, AFolderThatCannotBeIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  const absl::Status missing = PosixDisk::open_folder(folder.path("no/kv")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(message_of(missing).find("no/kv"), std::string::npos);
  std::ofstream(folder.path("file")) << "text";
  EXPECT_EQ(PosixDisk::open_folder(folder.path("file")).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(PosixDiskTest, OnlyPlainFilesAreListedAndOpened) {
  const TemporaryFolder folder;
  const auto disk = PosixDisk::open_folder(folder.path("kv"));
  ASSERT_TRUE(disk.ok());
  ASSERT_TRUE((*disk)->create("plain").ok());
  std::filesystem::create_directory(folder.path("kv/folder"));
  std::filesystem::create_symlink("plain", folder.path("kv/link"));
  ASSERT_EQ(::mkfifo(folder.path("kv/pipe").c_str(), 0600), 0);
  EXPECT_EQ((*disk)->list().value(), std::vector<std::string>{"plain"});
  for (const char* name : {"folder", "link", "pipe"}) {
    EXPECT_EQ((*disk)->open(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

// What a copy or another program may leave behind: the end is not at a unit's border.
TEST(PosixDiskTest, AFileThatEndsInsideAUnitIsReadUpToThatUnit) {
  const TemporaryFolder folder;
  const auto disk = PosixDisk::open_folder(folder.path("kv"));
  ASSERT_TRUE(disk.ok());
  const auto file = (*disk)->create("a");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->write(0, pattern(3 * kDiskAlign, 1).span()).ok());
  std::filesystem::resize_file(folder.path("kv/a"), 2 * kDiskAlign + 904);
  DiskBuffer back(4 * kDiskAlign);
  EXPECT_EQ((*file)->read(0, back.span()).code(), StatusCode::kOutOfRange);
  EXPECT_TRUE((*file)->read(0, back.span().first(2 * kDiskAlign)).ok());
  EXPECT_EQ((*file)->size().value(), 2 * kDiskAlign + 904);
}

// /dev/shm is the one other file system that a test can expect; not all refuse O_DIRECT there.
TEST(PosixDiskTest, AFileSystemInMemoryWorksToo) {
  std::string path = "/dev/shm/pagoda_disk_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) GTEST_SKIP() << "there is no /dev/shm";
  {
    const auto disk = PosixDisk::open_folder(path);
    ASSERT_TRUE(disk.ok()) << disk.status();
    const auto file = (*disk)->create("a");
    ASSERT_TRUE(file.ok()) << file.status();
    const DiskBuffer bytes = pattern(3 * kDiskAlign, 1);
    EXPECT_TRUE((*file)->write(0, bytes.span()).ok());
    EXPECT_TRUE((*file)->sync().ok());
    DiskBuffer back(3 * kDiskAlign);
    EXPECT_TRUE((*file)->read(0, back.span()).ok());
    EXPECT_TRUE(std::ranges::equal(back.span(), bytes.span()));
  }
  std::filesystem::remove_all(path);
}

// A size limit of the process stands for a full disk: it needs no file system of its own.
StatusCode write_within_limit(const std::string& folder) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{8192, 8192};
  CHECK_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto disk = PosixDisk::open_folder(folder);
  CHECK(disk.ok());
  const auto file = (*disk)->create("a");
  CHECK(file.ok());
  return (*file)->write(0, pattern(16384, 1).span()).code();
}

TEST(PosixDiskTest, AWriteThatDoesNotFitIsResourceExhausted) {
  const TemporaryFolder folder;
  EXPECT_EXIT(::_exit(static_cast<int>(write_within_limit(folder.path("kv")))),
              testing::ExitedWithCode(static_cast<int>(StatusCode::kResourceExhausted)), "");
}

}  // namespace
}  // namespace pagoda::base
