#include "cache/host_tier.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/pumped_io_queue.h"

namespace pagoda::cache {
namespace {

constexpr int64_t kBlockBytes = 8192;

using Bytes = std::vector<uint8_t>;

BlockKey key_of(uint8_t number) {
  BlockKey key{};
  key[7] = number;
  return key;
}

BlockRecord record_of(uint8_t number) {
  BlockRecord record;
  record.key = key_of(number);
  return record;
}

// Bytes that belong to a number and differ from one to the next.
Bytes bytes_of(uint8_t number) {
  Bytes bytes(kBlockBytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(number * 31 + i * 7 + i / 4096);
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<HostTier>> tier_of(int32_t n_blocks, base::IoQueue& queue) {
  return HostTier::create(
      {.capacity_bytes = n_blocks * kBlockBytes, .block_bytes = kBlockBytes, .numa_node = -1},
      queue);
}

class HostTierTest : public testing::Test {
 protected:
  HostTierTest() : tier_(*tier_of(3, queue_)) {}
  ~HostTierTest() override { queue_.pump_all(); }

  // Begin; the answer comes when the queue is pumped.
  void begin_put(uint8_t number, std::optional<absl::Status>& answer) {
    const Bytes& bytes = *sources_.emplace_back(std::make_unique<Bytes>(bytes_of(number)));
    tier_->put(record_of(number), bytes, [&answer](absl::Status status) { answer = status; });
  }
  void begin_get(uint8_t number, std::span<uint8_t> into, std::optional<absl::Status>& answer) {
    tier_->get(key_of(number), into, [&answer](absl::Status status) { answer = status; });
  }
  absl::StatusCode put(uint8_t number) {
    std::optional<absl::Status> answer;
    begin_put(number, answer);
    EXPECT_FALSE(answer.has_value());  // never within the call
    queue_.pump_all();
    return answer.has_value() ? answer->code() : absl::StatusCode::kInternal;
  }
  absl::StatusCode get(uint8_t number) {
    std::optional<absl::Status> answer;
    Bytes bytes(kBlockBytes);
    begin_get(number, bytes, answer);
    EXPECT_FALSE(answer.has_value());
    queue_.pump_all();
    if (!answer.has_value()) return absl::StatusCode::kInternal;
    if (answer->ok()) {
      EXPECT_EQ(bytes, bytes_of(number));
    }
    return answer->code();
  }

  base::PumpedIoQueue queue_;
  std::vector<std::unique_ptr<Bytes>> sources_;
  std::unique_ptr<HostTier> tier_;
};

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kFull = absl::StatusCode::kResourceExhausted;

TEST_F(HostTierTest, GivesBackWhatItWasGiven) {
  EXPECT_EQ(tier_->kind(), TierKind::kHost);
  EXPECT_EQ(tier_->capacity_blocks(), 3);
  EXPECT_EQ(get(1), kNotFound);
  EXPECT_EQ(put(1), kOk);
  EXPECT_EQ(put(2), kOk);
  EXPECT_EQ(get(1), kOk);
  EXPECT_EQ(get(2), kOk);
  EXPECT_EQ(get(1), kOk);
  const TierStats stats = tier_->stats();
  EXPECT_EQ(stats.n_blocks, 2);
  EXPECT_EQ(stats.bytes, 2 * kBlockBytes);
  EXPECT_EQ(stats.capacity_bytes, 3 * kBlockBytes);
  EXPECT_EQ(stats.n_puts, 2);
  EXPECT_EQ(stats.n_gets, 4);
  EXPECT_EQ(stats.bytes_written, 2 * kBlockBytes);
  EXPECT_EQ(stats.bytes_read, 3 * kBlockBytes);
}

TEST_F(HostTierTest, DeclinesWhenFullUntilOneIsDropped) {
  for (uint8_t i = 1; i <= 3; ++i) EXPECT_EQ(put(i), kOk);
  EXPECT_EQ(put(4), kFull);
  EXPECT_EQ(get(4), kNotFound);
  EXPECT_EQ(tier_->stats().n_put_declined, 1);
  tier_->drop(key_of(9));  // unknown
  tier_->drop(key_of(2));
  EXPECT_EQ(tier_->stats().bytes, 2 * kBlockBytes);
  EXPECT_EQ(get(2), kNotFound);
  EXPECT_EQ(put(4), kOk);
  EXPECT_EQ(get(4), kOk);
  EXPECT_EQ(get(1), kOk);
  EXPECT_EQ(tier_->stats().n_blocks, 3);
}

TEST_F(HostTierTest, APresentKeyIsKeptWithoutACopy) {
  EXPECT_EQ(put(1), kOk);
  EXPECT_EQ(put(1), kOk);
  for (uint8_t i = 2; i <= 3; ++i) EXPECT_EQ(put(i), kOk);
  EXPECT_EQ(put(1), kOk);  // even when full
  EXPECT_EQ(tier_->stats().bytes_written, 3 * kBlockBytes);
  EXPECT_EQ(tier_->stats().n_put_declined, 0);
  EXPECT_EQ(get(1), kOk);
}

TEST_F(HostTierTest, APutUnderWayIsNotThereYet) {
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  std::optional<absl::Status> got;
  Bytes into(kBlockBytes);
  begin_put(1, first);
  begin_put(1, second);
  begin_get(1, into, got);
  EXPECT_EQ(tier_->stats().n_blocks, 0);
  EXPECT_EQ(tier_->stats().bytes, kBlockBytes);
  queue_.pump_all();
  EXPECT_EQ(first->code(), kOk);
  EXPECT_EQ(second->code(), kOk);
  EXPECT_EQ(got->code(), kNotFound);
  EXPECT_EQ(tier_->stats().bytes_written, kBlockBytes);
  EXPECT_EQ(get(1), kOk);
}

TEST_F(HostTierTest, ADroppedBlockStaysUntilItsCopiesAreOver) {
  EXPECT_EQ(put(1), kOk);
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  Bytes into_first(kBlockBytes);
  Bytes into_second(kBlockBytes);
  begin_get(1, into_first, first);
  begin_get(1, into_second, second);
  tier_->drop(key_of(1));
  EXPECT_EQ(tier_->stats().n_blocks, 0);
  EXPECT_EQ(tier_->stats().bytes, kBlockBytes);
  queue_.pump_one(0);
  EXPECT_EQ(tier_->stats().bytes, kBlockBytes);
  // The same key again takes a place of its own meanwhile.
  std::optional<absl::Status> stored;
  begin_put(1, stored);
  EXPECT_EQ(tier_->stats().bytes, 2 * kBlockBytes);
  queue_.pump_all();
  EXPECT_EQ(first->code(), kOk);
  EXPECT_EQ(second->code(), kOk);
  EXPECT_EQ(into_first, bytes_of(1));
  EXPECT_EQ(into_second, bytes_of(1));
  EXPECT_EQ(tier_->stats().bytes, kBlockBytes);
  EXPECT_EQ(tier_->stats().n_blocks, 1);
  EXPECT_EQ(get(1), kOk);
}

TEST_F(HostTierTest, ADropDuringThePutFreesItAfterwards) {
  std::optional<absl::Status> stored;
  begin_put(1, stored);
  tier_->drop(key_of(1));
  tier_->drop(key_of(1));
  queue_.pump_all();
  EXPECT_EQ(stored->code(), kOk);
  EXPECT_EQ(get(1), kNotFound);
  EXPECT_EQ(tier_->stats().bytes, 0);
  EXPECT_EQ(tier_->stats().n_blocks, 0);
  for (uint8_t i = 1; i <= 3; ++i) EXPECT_EQ(put(i), kOk);
}

// Two pages of one address range that are the same memory: what is copied there in two pages reads
// back as the second one twice, as a block that has rotted would.
class MirroredPages {
 public:
  MirroredPages() : file_(memfd_create("mirrored", 0)) {
    EXPECT_EQ(ftruncate(file_, 4096), 0);
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, kBlockBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int64_t at = 0; at < kBlockBytes; at += 4096) {
      void* mapped =
          mmap(base_ + at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, 0);
      EXPECT_NE(mapped, MAP_FAILED);
    }
  }
  ~MirroredPages() {
    munmap(base_, kBlockBytes);
    close(file_);
  }
  MirroredPages(const MirroredPages&) = delete;
  MirroredPages& operator=(const MirroredPages&) = delete;
  std::span<uint8_t> span() const { return {base_, static_cast<size_t>(kBlockBytes)}; }

 private:
  int file_;
  uint8_t* base_ = nullptr;
};

TEST_F(HostTierTest, ChangedBytesAreALossAndLeave) {
  for (uint8_t i = 1; i <= 3; ++i) EXPECT_EQ(put(i), kOk);
  const MirroredPages pages;
  std::optional<absl::Status> first;
  std::optional<absl::Status> second;
  begin_get(1, pages.span(), first);
  begin_get(1, pages.span(), second);
  queue_.pump_all();
  EXPECT_EQ(first->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(second->code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(tier_->stats().n_errors_checksum, 2);
  EXPECT_EQ(tier_->stats().n_blocks, 2);
  EXPECT_EQ(get(1), kNotFound);
  EXPECT_EQ(get(2), kOk);
  EXPECT_EQ(put(4), kOk);
  EXPECT_EQ(get(4), kOk);
}

TEST_F(HostTierTest, OneLessThanABlockIsRefused) {
  const auto tier =
      HostTier::create({.capacity_bytes = kBlockBytes - 1, .block_bytes = kBlockBytes}, queue_);
  EXPECT_EQ(tier.status().code(), absl::StatusCode::kInvalidArgument);
  const auto one =
      HostTier::create({.capacity_bytes = 2 * kBlockBytes - 1, .block_bytes = kBlockBytes}, queue_);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ((*one)->capacity_blocks(), 1);
}

TEST_F(HostTierTest, UntouchedMemoryCostsNothing) {
  constexpr int64_t kCapacity = int64_t{1} << 39;  // more than there is
  const auto tier =
      HostTier::create({.capacity_bytes = kCapacity, .block_bytes = int64_t{2} << 20}, queue_);
  if (tier.status().code() == kFull) GTEST_SKIP() << "a system that promises no more than it has";
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_EQ((*tier)->capacity_blocks(), 1 << 18);
}

TEST_F(HostTierTest, ANodeThatDoesNotExistIsNamed) {
  for (const int32_t node : {-2, 1023, 1'000'000}) {
    const auto tier = HostTier::create(
        {.capacity_bytes = kBlockBytes, .block_bytes = kBlockBytes, .numa_node = node}, queue_);
    // Where the sandbox forbids the call, that is what is told.
    const bool is_forbidden = tier.status().code() == absl::StatusCode::kFailedPrecondition;
    if (!is_forbidden) {
      EXPECT_EQ(tier.status().code(), absl::StatusCode::kInvalidArgument);
    }
    EXPECT_NE(base::message_of(tier.status()).find("--kv-host-numa-node"), std::string::npos);
    EXPECT_NE(base::message_of(tier.status()).find(std::to_string(node)), std::string::npos);
  }
}

TEST_F(HostTierTest, TheFirstNodeHoldsBlocks) {
  auto tier = HostTier::create(
      {.capacity_bytes = kBlockBytes, .block_bytes = kBlockBytes, .numa_node = 0}, queue_);
  if (tier.status().code() == absl::StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << tier.status();
  }
  ASSERT_TRUE(tier.ok()) << tier.status();
  tier_ = *std::move(tier);
  EXPECT_EQ(put(1), kOk);
  EXPECT_EQ(get(1), kOk);
}

// Several callers and a queue of several threads: whatever a get gives is whole and its key's.
TEST(HostTierThreadTest, NoGetEverGivesAnothersBytes) {
  constexpr int kCallers = 3;
  constexpr int kCalls = 1500;
  constexpr uint8_t kKeys = 12;
  std::vector<Bytes> sources;
  for (uint8_t i = 0; i < kKeys; ++i) sources.push_back(bytes_of(i));
  base::ThreadIoQueue queue(2);
  auto tier = *tier_of(5, queue);
  std::atomic<int> n_calls{0};
  std::atomic<int> n_answers{0};
  std::atomic<int> n_good{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < kCallers; ++c) {
    callers.emplace_back([&, c] {
      std::mt19937 random(static_cast<uint32_t>(c));
      for (int i = 0; i < kCalls; ++i) {
        // Not so far ahead of the queue that no put is over when its get begins.
        while (n_calls - n_answers > 12) std::this_thread::yield();
        ++n_calls;
        const auto number = static_cast<uint8_t>(random() % kKeys);
        const auto what = random() % 8;
        if (what == 0) {
          tier->drop(key_of(number));
          ++n_answers;
        } else if (what < 4) {
          tier->put(record_of(number), sources[number], [&](absl::Status status) {
            EXPECT_TRUE(status.ok() || status.code() == kFull) << status;
            ++n_answers;
          });
        } else {
          auto into = std::make_shared<Bytes>(kBlockBytes);
          tier->get(key_of(number), *into, [&, number, into](absl::Status status) {
            EXPECT_TRUE(status.ok() || status.code() == kNotFound) << status;
            if (status.ok()) {
              EXPECT_EQ(*into, sources[number]);
              ++n_good;
            }
            ++n_answers;
          });
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (uint8_t i = 0; i < kKeys; ++i) tier->drop(key_of(i));
  tier.reset();  // waits for the answers
  EXPECT_EQ(n_answers, kCallers * kCalls);
  EXPECT_GT(n_good, 10);
}

}  // namespace
}  // namespace pagoda::cache
