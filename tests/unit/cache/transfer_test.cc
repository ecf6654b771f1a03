#include "cache/transfer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/cache/fake_tier.h"

namespace pagoda::cache {
namespace {

// A tier that is answered by hand, one thread.
class TransferTest : public testing::Test {
 protected:
  TransferTest() : device_(4096), host_(keep()), ssd_(keep()) {}

  std::unique_ptr<TransferEngine> engine(TransferOptions options) {
    return std::make_unique<TransferEngine>(options, device_.memory(), &host_, &ssd_, clock_,
                                            [this] { ++n_wakes_; });
  }
  std::function<void(Call)> keep() {
    return [this](Call call) { calls_.push_back(std::move(call)); };
  }
  // The keys under way, gets as they are and puts negative, in the order of their start.
  std::vector<int32_t> under_way() const {
    std::vector<int32_t> numbers;
    for (const Call& call : calls_) {
      numbers.push_back(call.is_get ? number_of(call.key) : -number_of(call.key));
    }
    return numbers;
  }
  void answer_first(absl::Status status = absl::OkStatus()) {
    Call call = std::move(calls_.front());
    calls_.pop_front();
    call.answer(std::move(status));
  }
  void answer_all() {
    while (!calls_.empty()) answer_first();
  }

  Device device_;
  std::deque<Call> calls_;
  FakeTier host_;
  FakeTier ssd_;
  base::FakeClock clock_;
  int n_wakes_ = 0;
};

using Numbers = std::vector<int32_t>;

TEST_F(TransferTest, ARestoreArrivesAndIsToldOnce) {
  const auto engine = this->engine({});
  const TransferId id = engine->restore(blocks_of(5, 2));
  EXPECT_FALSE(engine->idle());
  clock_.advance_us(250);
  answer_first();
  answer_first(failure());
  EXPECT_EQ(n_wakes_, 1);
  EXPECT_FALSE(engine->idle());
  const std::vector<TransferDone> done = engine->poll();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].id, id);
  EXPECT_TRUE(done[0].is_restore);
  EXPECT_EQ(done[0].index, 0);
  EXPECT_EQ(done[0].tier, TierKind::kSsd);
  EXPECT_EQ(done[0].block, BlockId(5));
  EXPECT_EQ(done[0].key, key_of(5));
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(done[0].us, 250);
  EXPECT_TRUE(device_.is_filled(5, byte_of(key_of(5))));
  EXPECT_EQ(done[1].index, 1);
  EXPECT_EQ(done[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(engine->idle());
  EXPECT_TRUE(engine->poll().empty());

  const TransferStats stats = engine->stats();
  const TransferStats::OneTier& ssd = stats.tiers[static_cast<size_t>(TierKind::kSsd)];
  EXPECT_EQ(ssd.n_restored, 1);
  EXPECT_EQ(ssd.n_failed, 1);
  EXPECT_EQ(ssd.restored_bytes, kBlockBytes);
  EXPECT_EQ(ssd.restores.sum_us, 250);
}

TEST_F(TransferTest, WakesOnceUntilPolled) {
  const auto engine = this->engine({});
  engine->restore(blocks_of(0, 8));
  for (int i = 0; i < 3; ++i) answer_first();
  EXPECT_EQ(n_wakes_, 1);
  EXPECT_EQ(engine->poll().size(), 3U);
  EXPECT_EQ(n_wakes_, 1);
  answer_all();
  EXPECT_EQ(n_wakes_, 2);
  EXPECT_EQ(engine->poll().size(), 5U);
}

TEST_F(TransferTest, JobsTakeTurnsWithinTheWindow) {
  const auto engine = this->engine({.restore_window = 3});
  engine->restore(blocks_of(10, 4));
  engine->restore(blocks_of(20, 2, TierKind::kHost));
  engine->restore(blocks_of(30, 2));
  EXPECT_EQ(under_way(), (Numbers{10, 11, 12}));
  Numbers order;
  while (!calls_.empty()) {
    EXPECT_LE(calls_.size(), 3U);
    order.push_back(under_way()[0]);
    answer_first();  // and no poll: a long step of the engine doesn't hold the rest up
  }
  EXPECT_EQ(order, (Numbers{10, 11, 12, 13, 20, 30, 21, 31}));
  EXPECT_EQ(engine->poll().size(), 8U);
  EXPECT_TRUE(engine->idle());
}

TEST_F(TransferTest, AJobGrowsUntilItIsOver) {
  const auto engine = this->engine({.restore_window = 1});
  const TransferId id = engine->restore(blocks_of(0, 2));
  EXPECT_EQ(engine->n_waiting(id), 1);
  EXPECT_TRUE(engine->append(id, blocks_of(2, 2)));
  EXPECT_EQ(engine->n_waiting(id), 3);
  answer_all();
  EXPECT_TRUE(engine->append(id, blocks_of(4, 1)));  // nothing was reported yet
  answer_all();
  const std::vector<TransferDone> done = engine->poll();
  ASSERT_EQ(done.size(), 5U);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(done[static_cast<size_t>(i)].index, i);
  EXPECT_FALSE(engine->append(id, blocks_of(5, 1)));
  EXPECT_EQ(engine->n_waiting(id), 0);
  EXPECT_EQ(engine->end(id), 0);
  EXPECT_FALSE(engine->append(engine->restore({}), blocks_of(6, 1)));
  EXPECT_TRUE(engine->idle());
}

TEST_F(TransferTest, TakenBackBlocksAreNotTold) {
  const auto engine = this->engine({.restore_window = 2});
  const TransferId id = engine->restore(blocks_of(0, 6));
  EXPECT_EQ(engine->take_back(id, 3), 3);
  EXPECT_EQ(engine->n_waiting(id), 1);
  EXPECT_TRUE(engine->append(id, blocks_of(7, 1)));
  EXPECT_EQ(engine->stats().n_restores_waiting(), 2);
  answer_all();
  const std::vector<TransferDone> done = engine->poll();
  Numbers indices;
  for (const TransferDone& one : done) indices.push_back(one.index);
  EXPECT_EQ(indices, (Numbers{0, 1, 2, 6}));
  EXPECT_EQ(engine->take_back(id, 3), 0);
  EXPECT_TRUE(engine->idle());
}

TEST_F(TransferTest, TakingBackAllThatIsLeftEndsAJob) {
  const auto engine = this->engine({.restore_window = 1});
  engine->restore(blocks_of(0, 1));
  const TransferId id = engine->restore(blocks_of(1, 2));
  EXPECT_EQ(engine->take_back(id, 10), 2);
  EXPECT_FALSE(engine->append(id, blocks_of(3, 1)));
  const TransferId next = engine->restore(blocks_of(4, 1));
  EXPECT_EQ(engine->take_back(next, -1), 0);
  answer_all();
  EXPECT_EQ(engine->poll().size(), 2U);
}

TEST_F(TransferTest, AnEndedJobTellsOnlyWhatWasUnderWay) {
  const auto engine = this->engine({.restore_window = 2});
  const TransferId id = engine->restore(blocks_of(0, 6));
  EXPECT_EQ(engine->end(id), 4);
  EXPECT_FALSE(engine->append(id, blocks_of(6, 1)));
  EXPECT_EQ(engine->end(id), 0);
  EXPECT_EQ(under_way(), (Numbers{0, 1}));
  answer_all();
  EXPECT_EQ(engine->poll().size(), 2U);
  EXPECT_TRUE(engine->idle());
}

TEST_F(TransferTest, OffloadsWaitForRestoresButNotForEver) {
  const auto engine = this->engine({.restore_window = 2, .offload_window = 2});
  engine->restore(blocks_of(10, 7));
  for (int32_t i = 1; i <= 4; ++i) {
    EXPECT_TRUE(engine->offload(record_of(i), BlockId(i), TierKind::kHost));
  }
  // A windowful of restores has begun, so one offload goes along; the next after as many again.
  EXPECT_EQ(under_way(), (Numbers{10, 11, -1}));
  answer_first();
  answer_first();
  EXPECT_EQ(under_way(), (Numbers{-1, 12, 13}));
  answer_first();
  EXPECT_EQ(under_way(), (Numbers{12, 13, -2}));
  answer_first();
  answer_first();
  EXPECT_EQ(under_way(), (Numbers{-2, 14, 15}));
  answer_first();
  EXPECT_EQ(under_way(), (Numbers{14, 15, -3}));
  answer_first();
  // The last restore has begun: nothing is in the way of the offloads' own window.
  EXPECT_EQ(under_way(), (Numbers{15, -3, 16, -4}));
  answer_all();
  EXPECT_EQ(engine->poll().size(), 11U);
  EXPECT_TRUE(engine->idle());
}

TEST_F(TransferTest, OffloadsKeepToTheirWindowAndCount) {
  const auto engine = this->engine({.offload_window = 2, .max_offloads = 3});
  for (int32_t i = 1; i <= 5; ++i) {
    EXPECT_TRUE(engine->offload(record_of(i), BlockId(i), TierKind::kHost));
  }
  EXPECT_FALSE(engine->offload(record_of(6), BlockId(6), TierKind::kHost));
  EXPECT_EQ(under_way(), (Numbers{-1, -2}));
  EXPECT_EQ(engine->stats().n_offloads_waiting, 3);
  EXPECT_EQ(engine->stats().n_offloads_running, 2);
  answer_first(full());
  answer_first(failure());
  answer_all();
  const std::vector<TransferDone> done = engine->poll();
  ASSERT_EQ(done.size(), 5U);
  EXPECT_FALSE(done[0].is_restore);
  EXPECT_EQ(done[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(done[0].block, BlockId(1));
  EXPECT_EQ(done[0].key, key_of(1));
  EXPECT_EQ(done[0].tier, TierKind::kHost);
  const TransferStats stats = engine->stats();
  const TransferStats::OneTier& host = stats.tiers[static_cast<size_t>(TierKind::kHost)];
  EXPECT_EQ(host.n_offloaded, 3);
  EXPECT_EQ(host.offloaded_bytes, 3 * kBlockBytes);
  EXPECT_EQ(host.n_declined, 3);  // one by the engine, two by the tier
  EXPECT_EQ(stats.n_offloads_waiting, 0);
}

// Answered inside the call, many times over: no recursion, and no lock that is held.
TEST(TransferInlineTest, ATierMayAnswerWithinTheCall) {
  constexpr int32_t kBlocks = 100'000;
  Device device(kBlocks);
  base::FakeClock clock;
  TransferEngine* shared = nullptr;
  int depth = 0;
  int wakes = 0;
  FakeTier tier([&](Call call) {
    EXPECT_EQ(++depth, 1);
    EXPECT_LE(shared->stats().n_restores_running, 8);
    call.answer();
    --depth;
  });
  TransferEngine engine({}, device.memory(), nullptr, &tier, clock, [&] {
    ++wakes;
    EXPECT_FALSE(shared->idle());
  });
  shared = &engine;
  const TransferId id = engine.restore(blocks_of(0, kBlocks));
  for (int32_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(engine.offload(record_of(i), BlockId(i), TierKind::kSsd));
  }
  EXPECT_EQ(engine.n_waiting(id), 0);
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(engine.poll().size(), kBlocks + 1000U);
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace pagoda::cache
