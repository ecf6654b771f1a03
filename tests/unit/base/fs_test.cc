#include "base/fs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/check.h"

namespace pagoda::base {
namespace {

using absl::StatusCode;

std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8));
  return bytes;
}

std::vector<uint8_t> copy_of(const MappedFile& file) {
  return {file.bytes().begin(), file.bytes().end()};
}

// The same promises for every file system; each has its own way to make a file.
class FileSystemTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "pagoda_fs_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  bool on_disk() const { return GetParam(); }
  FileSystem& fs() {
    if (on_disk()) return posix_;
    return memory_;
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::vector<uint8_t>& bytes) {
    if (on_disk()) {
      std::ofstream(path(name), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    } else {
      memory_.put(path(name), bytes);
    }
    return path(name);
  }

  PosixFileSystem posix_;
  MemoryFileSystem memory_;
  std::string folder_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, FileSystemTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Posix" : "Memory"; });

TEST_P(FileSystemTest, MapsAndReadsTheWholeContent) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, size_t{1'000'003}}) {
    const std::vector<uint8_t> bytes = pattern(size);
    const std::string file = write("f" + std::to_string(size), bytes);
    EXPECT_TRUE(fs().exists(file));
    const auto mapped = fs().map(file);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_EQ(copy_of(**mapped), bytes);
    const auto text = fs().read(file, size);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, std::string(bytes.begin(), bytes.end()));
  }
}

TEST_P(FileSystemTest, AMissingFileIsNotFoundAndNamed) {
  const std::string missing = path("missing.gguf");
  EXPECT_FALSE(fs().exists(missing));
  for (const absl::Status& status : {fs().map(missing).status(), fs().read(missing, 10).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_NE(message_of(status).find(missing), std::string::npos) << status;
  }
}

TEST_P(FileSystemTest, ReadRefusesMoreThanTheLimit) {
  const std::string file = write("ten", pattern(10));
  EXPECT_TRUE(fs().read(file, 10).ok());
  const absl::Status status = fs().read(file, 9).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(message_of(status).find(file), std::string::npos);
}

TEST_P(FileSystemTest, AMappingIsRightAfterDropOfAnyRange) {
  const std::vector<uint8_t> bytes = pattern(5 * 4096 + 17);
  const auto mapped = fs().map(write("drop", bytes));
  ASSERT_TRUE(mapped.ok());
  const size_t size = bytes.size();
  (*mapped)->drop(0, size);
  (*mapped)->drop(4097, 8191);
  (*mapped)->drop(1, 1);
  (*mapped)->drop(size, size);
  (*mapped)->drop(0, size + 1'000'000);
  (*mapped)->drop(10, 5);
  EXPECT_EQ(copy_of(**mapped), bytes);
}

TEST_P(FileSystemTest, AMappingOutlivesTheName) {
  const std::vector<uint8_t> old_bytes = pattern(9000);
  const std::string file = write("model", old_bytes);
  const auto mapped = fs().map(file);
  ASSERT_TRUE(mapped.ok());
  if (on_disk()) std::filesystem::remove(file);
  const std::vector<uint8_t> new_bytes(100, 1);
  write("model", new_bytes);
  EXPECT_EQ(copy_of(**mapped), old_bytes);
  EXPECT_EQ(copy_of(**fs().map(file)), new_bytes);
}

TEST_P(FileSystemTest, ManyThreadsMapAndRead) {
  const std::vector<uint8_t> bytes = pattern(20'000);
  const std::string file = write("shared", bytes);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const auto mapped = fs().map(file);
        ASSERT_TRUE(mapped.ok());
        ASSERT_EQ(copy_of(**mapped), bytes);
        ASSERT_EQ(fs().read(file, bytes.size())->size(), bytes.size());
        ASSERT_FALSE(fs().exists(file + "x"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class PosixFileSystemTest : public FileSystemTest {};
INSTANTIATE_TEST_SUITE_P(Disk, PosixFileSystemTest, testing::Values(true));

TEST_P(PosixFileSystemTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(posix_.map(folder_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(posix_.read(folder_, 10).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(posix_.map("/dev/null").status().code(), StatusCode::kInvalidArgument);
}

// A pipe that nobody writes to must be refused like any other odd file, and at once.
TEST_P(PosixFileSystemTest, APipeIsRefusedWithoutWaiting) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(posix_.map(pipe).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(posix_.read(pipe, 10).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(PosixFileSystemTest, OddPathsAreNotFound) {
  const std::string file = write("plain", pattern(3));
  EXPECT_EQ(posix_.map(file + "/below").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(posix_.map("").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(posix_.exists(""));
}

TEST_P(PosixFileSystemTest, AForbiddenFileIsPermissionDenied) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string file = write("secret", pattern(3));
  ASSERT_EQ(::chmod(file.c_str(), 0), 0);
  EXPECT_EQ(posix_.map(file).status().code(), StatusCode::kPermissionDenied);
}

TEST(FaultyFileSystemTest, FailsWhereToldAndPassesOnTheRest) {
  MemoryFileSystem memory;
  memory.put("/good", pattern(5));
  memory.put("/bad", pattern(5));
  int asked = 0;
  FaultyFileSystem faulty(memory, [&asked](const std::string& path) {
    ++asked;
    if (path != "/bad") return absl::OkStatus();
    return status_error(StatusCode::kUnavailable, "{}: the disk failed", path);
  });
  EXPECT_TRUE(faulty.map("/good").ok());
  EXPECT_TRUE(faulty.read("/good", 5).ok());
  EXPECT_EQ(faulty.map("/bad").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(message_of(faulty.read("/bad", 5).status()), "/bad: the disk failed");
  EXPECT_EQ(faulty.map("/gone").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(faulty.exists("/bad"));
  EXPECT_EQ(asked, 5);
}

}  // namespace
}  // namespace pagoda::base
