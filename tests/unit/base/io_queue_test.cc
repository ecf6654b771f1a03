#include "base/io_queue.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <thread>

#include "base/check.h"
#include "base/memory_disk.h"
#include "base/posix_disk.h"
#include "base/pumped_io_queue.h"
#include "base/uring_io_queue.h"

namespace pagoda::base {
namespace {

using absl::StatusCode;

void fill(std::span<uint8_t> bytes, int64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i * 131 + (i >> 8) + static_cast<size_t>(seed) * 7);
  }
}

// Gives an op and waits for its answer.
template <typename Give>
absl::Status wait_for(Give give) {
  std::promise<absl::Status> answer;
  give([&answer](absl::Status status) { answer.set_value(std::move(status)); });
  return answer.get_future().get();
}

enum class Kind : uint8_t { kThreads, kUring, kUringOfOne };

// The same promises for every queue whose ops run on their own.
class IoQueueTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "pagoda_io_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    auto disk = PosixDisk::open_folder(folder_);
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    make_queue();
  }
  void TearDown() override {
    queue_.reset();
    disk_.reset();
    std::filesystem::remove_all(folder_);
  }
  void make_queue() {
    if (GetParam() == Kind::kThreads) {
      queue_ = std::make_unique<ThreadIoQueue>(3);
      return;
    }
    auto uring = UringIoQueue::open(GetParam() == Kind::kUringOfOne ? 1 : 8);
    if (!uring.ok()) GTEST_SKIP() << uring.status();
    queue_ = *std::move(uring);
  }
  std::shared_ptr<DiskFile> file(const std::string& name) {
    auto file = disk_->create(name);
    CHECK(file.ok());
    return *std::move(file);
  }
  absl::Status read(const std::shared_ptr<DiskFile>& file, int64_t offset,
                    std::span<uint8_t> into) {
    return wait_for([&](IoQueue::Done done) { queue_->read(file, offset, into, std::move(done)); });
  }
  absl::Status write(const std::shared_ptr<DiskFile>& file, int64_t offset,
                     std::span<const uint8_t> bytes) {
    return wait_for(
        [&](IoQueue::Done done) { queue_->write(file, offset, bytes, std::move(done)); });
  }

  std::string folder_;
  std::unique_ptr<PosixDisk> disk_;
  std::unique_ptr<IoQueue> queue_;
};

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  static const char* const names[] = {"Threads", "Uring", "UringOfOne"};
  return names[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, IoQueueTest,
                         testing::Values(Kind::kThreads, Kind::kUring, Kind::kUringOfOne),
                         kind_name);

TEST_P(IoQueueTest, ReadsWhatItWrote) {
  const auto f = file("a");
  DiskBuffer out(90 * kDiskAlign);
  DiskBuffer back(90 * kDiskAlign);
  fill(out.span(), 1);
  EXPECT_TRUE(write(f, kDiskAlign, out.span()).ok());
  EXPECT_TRUE(wait_for([&](IoQueue::Done done) { queue_->sync(f, std::move(done)); }).ok());
  EXPECT_TRUE(read(f, kDiskAlign, back.span()).ok());
  EXPECT_TRUE(std::ranges::equal(out.span(), back.span()));
  EXPECT_EQ(f->size().value(), 91 * kDiskAlign);
  EXPECT_TRUE(read(f, 0, {}).ok());
}

TEST_P(IoQueueTest, AReadPastTheEndIsOutOfRangeAndNamesTheFile) {
  const auto f = file("short");
  DiskBuffer buffer(4 * kDiskAlign);
  ASSERT_TRUE(write(f, 0, buffer.span().first(2 * kDiskAlign)).ok());
  const auto expect_out_of_range = [&](int64_t offset) {
    const absl::Status status = read(f, offset, buffer.span());
    EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
    EXPECT_NE(message_of(status).find("short"), std::string::npos) << status;
  };
  expect_out_of_range(0);  // two units of four
  expect_out_of_range(2 * kDiskAlign);
  expect_out_of_range(50 * kDiskAlign);
  std::filesystem::resize_file(folder_ + "/short", kDiskAlign + 700);
  expect_out_of_range(0);
  EXPECT_TRUE(read(f, 0, buffer.span().first(kDiskAlign)).ok());
}

TEST_P(IoQueueTest, ManyOpsOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 40;
  constexpr int64_t kBytes = 4 * kDiskAlign;
  const auto f = file("a");
  std::atomic<int> n_done{0};
  {
    std::vector<std::thread> threads;
    std::vector<DiskBuffer> buffers(kThreads * kBlocks);
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = t * kBlocks; i < (t + 1) * kBlocks; ++i) {
          DiskBuffer& buffer = buffers[static_cast<size_t>(i)];
          buffer = DiskBuffer(kBytes);
          fill(buffer.span(), i);
          // Read back into the same memory by the write's own callback.
          queue_->write(f, i * kBytes, buffer.span(), [&, i](absl::Status status) {
            EXPECT_TRUE(status.ok()) << status;
            std::span<uint8_t> bytes = buffers[static_cast<size_t>(i)].span();
            std::ranges::fill(bytes, uint8_t{0});
            queue_->read(f, i * kBytes, bytes, [&, i, bytes](absl::Status read_status) {
              EXPECT_TRUE(read_status.ok()) << read_status;
              DiskBuffer expected(kBytes);
              fill(expected.span(), i);
              EXPECT_TRUE(std::ranges::equal(bytes, expected.span())) << i;
              ++n_done;
            });
          });
        }
      });
    }
    // The threads that gave the ops may be gone before the answers.
    for (std::thread& thread : threads) thread.join();
    while (n_done < kThreads * kBlocks) std::this_thread::yield();
  }
  EXPECT_EQ(f->size().value(), kThreads * kBlocks * kBytes);
}

TEST_P(IoQueueTest, TheDestructorWaitsForAllAndRefusesWhatComesLate) {
  const auto f = file("a");
  constexpr int kOps = 100;
  DiskBuffer buffer(kOps * kDiskAlign);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> n_written{0};
  std::atomic<int> n_late{0};
  std::atomic<int> n_refused{0};
  std::atomic<int> n_tasks{0};
  for (int i = 0; i < kOps; ++i) {
    queue_->write(f, i * kDiskAlign, buffer.span().subspan(static_cast<size_t>(i) * 4096, 4096),
                  [&](absl::Status status) { n_written += status.ok(); });
  }
  // Ends only once it was refused something, which is some time after the destructor began. It may
  // wait for that, as every kind has another thread.
  IoQueue* queue = queue_.get();
  queue->run([&, queue] {
    opened.wait();
    while (n_refused == 0) {
      ++n_late;
      queue->read(f, 0, {}, [&](absl::Status status) {
        n_refused += status.code() == StatusCode::kUnavailable;
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable) << status;
        --n_late;
      });
      std::this_thread::yield();
    }
    queue->sync(f, [&](absl::Status status) {
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      ++n_refused;
    });
    queue->run([&] { ++n_tasks; });
  });
  std::thread opener([&] { gate.set_value(); });
  queue_.reset();
  opener.join();
  EXPECT_EQ(n_written, kOps);
  EXPECT_EQ(n_late, 0);
  EXPECT_GE(n_refused, 2);
  EXPECT_EQ(n_tasks, 1);
}

TEST_P(IoQueueTest, TasksRunOnThreadsOfTheQueue) {
  std::promise<std::thread::id> id;
  auto owned = std::make_unique<int>(1);
  queue_->run([&id, owned = std::move(owned)] { id.set_value(std::this_thread::get_id()); });
  EXPECT_NE(id.get_future().get(), std::this_thread::get_id());
}

TEST_P(IoQueueTest, FilesWithoutADescriptorAndTheirFaults) {
  MemoryDisk disk;
  const auto f = disk.create("m").value();
  DiskBuffer out(2 * kDiskAlign);
  DiskBuffer back(2 * kDiskAlign);
  fill(out.span(), 5);
  EXPECT_TRUE(write(f, 0, out.span()).ok());
  EXPECT_TRUE(read(f, 0, back.span()).ok());
  EXPECT_TRUE(std::ranges::equal(out.span(), back.span()));
  EXPECT_EQ(read(f, kDiskAlign, back.span()).code(), StatusCode::kOutOfRange);
  disk.set_capacity(0);
  EXPECT_EQ(write(f, 2 * kDiskAlign, out.span()).code(), StatusCode::kResourceExhausted);
  disk.crash(1);
  EXPECT_EQ(wait_for([&](IoQueue::Done done) { queue_->sync(f, std::move(done)); }).code(),
            StatusCode::kUnavailable);
}

TEST_P(IoQueueTest, AnOpKeepsItsFileOpenAndLetsGoOfIt) {
  auto f = file("a");
  const std::weak_ptr<DiskFile> seen = f;
  DiskBuffer buffer(kDiskAlign);
  std::promise<absl::Status> answer;
  queue_->write(std::move(f), 0, buffer.span(),
                [&](absl::Status status) { answer.set_value(std::move(status)); });
  EXPECT_TRUE(answer.get_future().get().ok());
  queue_.reset();
  EXPECT_TRUE(seen.expired());
}

TEST(MakeIoQueueTest, EitherWayThereIsAQueue) {
  for (const bool allow_uring : {false, true}) {
    const auto queue = make_io_queue(1, allow_uring);
    std::promise<void> ran;
    queue->run([&ran] { ran.set_value(); });
    ran.get_future().wait();
  }
}

// As container runtimes do.
void forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  CHECK_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

bool falls_back_to_threads() {
  forbid_io_uring();
  if (UringIoQueue::open(8).status().code() != StatusCode::kUnavailable) return false;
  std::promise<void> ran;
  make_io_queue(1, true)->run([&ran] { ran.set_value(); });
  ran.get_future().wait();
  return true;
}

TEST(MakeIoQueueTest, WithoutIoUringThereAreThreads) {
  EXPECT_EXIT(::_exit(falls_back_to_threads() ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST(PumpedIoQueueTest, DoesNothingUntilItIsToldAndRunsWhatIsPicked) {
  PumpedIoQueue queue;
  std::vector<int> ran;
  for (int i = 0; i < 5; ++i) queue.run([&ran, i] { ran.push_back(i); });
  EXPECT_EQ(queue.queued(), 5u);
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(queue.pump_one(3));
  EXPECT_TRUE(queue.pump_one(4));  // of 0 1 2 4 the first
  EXPECT_EQ(ran, (std::vector{3, 0}));
  queue.pump_all();
  EXPECT_EQ(ran, (std::vector{3, 0, 1, 2, 4}));
  EXPECT_FALSE(queue.pump_one(0));
}

TEST(PumpedIoQueueTest, OpsMayGiveOps) {
  MemoryDisk disk;
  const auto f = disk.create("a").value();
  PumpedIoQueue queue;
  DiskBuffer buffer(kDiskAlign);
  fill(buffer.span(), 1);
  absl::Status last = absl::Status(StatusCode::kUnknown, "not yet");
  queue.write(f, 0, buffer.span(), [&](absl::Status status) {
    EXPECT_TRUE(status.ok());
    queue.sync(f, [&](absl::Status sync_status) { last = sync_status; });
  });
  EXPECT_TRUE(queue.pump_one(0));
  EXPECT_FALSE(last.ok());
  queue.pump_all();
  EXPECT_TRUE(last.ok());
  disk.crash(1);
}

TEST(PumpedIoQueueTest, TheDestructorRunsWhatIsQueuedAndRefusesWhatThatGives) {
  MemoryDisk disk;
  const auto f = disk.create("a").value();
  DiskBuffer buffer(kDiskAlign);
  StatusCode first = StatusCode::kUnknown;
  StatusCode second = StatusCode::kUnknown;
  bool task_ran = false;
  {
    PumpedIoQueue queue;
    queue.write(f, 0, buffer.span(), [&](absl::Status status) {
      first = status.code();
      queue.run([&] { task_ran = true; });
      queue.sync(f, [&](absl::Status sync_status) { second = sync_status.code(); });
    });
  }
  EXPECT_EQ(first, StatusCode::kOk);
  EXPECT_EQ(second, StatusCode::kUnavailable);
  EXPECT_TRUE(task_ran);
}

}  // namespace
}  // namespace pagoda::base
