// Speed of the two I/O queues on one disk, in turns: one JSON line a case, in MB/s, and the ratio
// of io_uring to threads. Past the page cache where the file system can.
//
//   io_bench [--path FOLDER] [--threads N] [--block BYTES] [--blocks N]
//
// `give_us` is what one op costs the thread that gives it. Rounds of the queues alternate and the
// middle one counts: on a shared disk the neighbours are measured too.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/posix_disk.h"
#include "base/uring_io_queue.h"

namespace pagoda::base {
namespace {

constexpr int kRounds = 9;
constexpr int32_t kDepth = 64;

struct Options {
  std::string path = std::filesystem::temp_directory_path() / "pagoda_io_bench";
  int32_t n_threads = 4;
  int64_t block_bytes = 360 << 10;
  int64_t n_blocks = 256;
};

struct Times {
  std::vector<double> mb_s;
  std::vector<double> give_us;
};

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// All blocks once, in any order, all given at once.
void run_round(IoQueue& queue, const std::shared_ptr<DiskFile>& file, std::span<uint8_t> memory,
               const std::vector<int64_t>& order, bool is_read, Times& times) {
  const size_t block = memory.size() / order.size();
  std::mutex mutex;
  size_t n_left = order.size();
  std::promise<void> all_done;
  const auto done = [&](const absl::Status& status) {
    CHECK(status.ok());
    std::lock_guard lock(mutex);
    if (--n_left == 0) all_done.set_value();
  };
  const auto begin = std::chrono::steady_clock::now();
  for (const int64_t i : order) {
    const auto bytes = memory.subspan(static_cast<size_t>(i) * block, block);
    const int64_t offset = i * static_cast<int64_t>(block);
    if (is_read) {
      queue.read(file, offset, bytes, done);
    } else {
      queue.write(file, offset, bytes, done);
    }
  }
  times.give_us.push_back(seconds_since(begin) * 1e6 / static_cast<double>(order.size()));
  all_done.get_future().wait();
  times.mb_s.push_back(static_cast<double>(memory.size()) / 1e6 / seconds_since(begin));
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--path") options.path = argv[i + 1];
    if (flag == "--threads") options.n_threads = std::atoi(argv[i + 1]);
    if (flag == "--block") options.block_bytes = disk_align_up(std::atoll(argv[i + 1]));
    if (flag == "--blocks") options.n_blocks = std::atoll(argv[i + 1]);
  }
  const auto disk = PosixDisk::open_folder(options.path);
  auto uring = UringIoQueue::open(kDepth);
  for (const absl::Status& status : {disk.status(), uring.status()}) {
    if (status.ok()) continue;
    fmt::print(stderr, "io_bench: {}\n", message_of(status));
    return 1;
  }
  const std::unique_ptr<IoQueue> queues[] = {
      std::make_unique<ThreadIoQueue>(options.n_threads),
      *std::move(uring),
  };
  const char* const names[] = {"threads", "io_uring"};

  (*disk)->remove("bench").IgnoreError();  // of a run that was stopped, if any
  const auto file = (*disk)->create("bench");
  CHECK(file.ok());
  DiskBuffer memory(options.block_bytes * options.n_blocks);
  std::vector<int64_t> order(static_cast<size_t>(options.n_blocks));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::mt19937_64 random(1);
  for (uint8_t& byte : memory.span()) byte = static_cast<uint8_t>(random());
  CHECK((*file)->write(0, memory.span()).ok());

  for (const bool is_read : {false, true}) {
    Times times[2];
    for (int round = 0; round < kRounds; ++round) {
      if (is_read) std::ranges::shuffle(order, random);
      for (size_t q = 0; q < 2; ++q) {
        run_round(*queues[q], *file, memory.span(), order, is_read, times[q]);
      }
    }
    for (size_t q = 0; q < 2; ++q) {
      fmt::print(R"({{"case":"{}","queue":"{}","block_bytes":{},"direct":{},"mb_s":{:.0f},)"
                 R"("give_us":{:.1f}}})"
                 "\n",
                 is_read ? "read" : "write", names[q], options.block_bytes,
                 (*file)->descriptor() >= 0, middle(times[q].mb_s), middle(times[q].give_us));
    }
    fmt::print(R"({{"case":"{}","io_uring_to_threads":{:.2f}}})"
               "\n",
               is_read ? "read" : "write", middle(times[1].mb_s) / middle(times[0].mb_s));
  }
  CHECK((*disk)->remove("bench").ok());
  return 0;
}

}  // namespace
}  // namespace pagoda::base

int main(int argc, char** argv) { return pagoda::base::run(argc, argv); }
