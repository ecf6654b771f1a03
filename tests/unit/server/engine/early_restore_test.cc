// KV that comes up while its request waits for a slot.
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <thread>

#include "base/memory_disk.h"
#include "tests/sim/machine.h"

namespace pagoda::engine {
namespace {

class LastSink final : public TokenSink {
 public:
  void push(TokenEvent&& event) override {
    if (event.kind == TokenEvent::Kind::kToken) tokens.push_back(event.result.token);
    if (event.kind == TokenEvent::Kind::kFinish) is_over = true;
    usage = event.usage;
  }
  std::vector<TokenId> tokens;
  Usage usage;
  bool is_over = false;
};

class EarlyRestoreTest : public testing::Test {
 protected:
  explicit EarlyRestoreTest(int32_t n_blocks = 64) {
    sim::MachineConfig config;
    config.runner = {.n_blocks = n_blocks, .n_slots = 1, .max_rows = 64};
    config.cache.n_blocks = n_blocks;
    config.cache.tiers.restore_policy = cache::RestorePolicy::kRestore;
    config.engine.max_num_seqs = 1;
    config.engine.max_num_batched_tokens = 64;
    config.engine.max_model_len = 400;
    config.host_blocks = 64;
    machine_ = std::make_unique<sim::Machine>(config, disk_, clock_);
  }

  std::shared_ptr<LastSink> ask(const std::vector<TokenId>& prompt, int32_t max_tokens) {
    Request request;
    request.id = RequestId(++n_requests_);
    request.prompt = prompt;
    request.sampling.max_tokens = max_tokens;
    request.arrival_us = clock_.now_us();
    request.sink = std::make_shared<LastSink>();
    const auto sink = std::static_pointer_cast<LastSink>(request.sink);
    EXPECT_TRUE(engine().submit(std::move(request)).ok());
    return sink;
  }
  void step() {
    engine().step();
    machine_->queue.pump_all();
    machine_->cache.check();
  }
  void run() {
    for (int32_t i = 0; i < 2000 && !engine().idle(); ++i) step();
    ASSERT_TRUE(engine().idle());
    for (int32_t i = 0; i < 10; ++i) step();
  }
  static std::vector<TokenId> tokens(int32_t n, int32_t first) {
    std::vector<TokenId> tokens(static_cast<size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  // Answers the prompt once; then its KV lies in the host tier alone.
  std::vector<TokenId> leave_in_host(const std::vector<TokenId>& prompt) {
    const auto sink = ask(prompt, 8);
    run();
    machine_->cache.free_path({}, prompt, false);
    EXPECT_EQ(machine_->cache.residency({}, prompt)[0], 0);
    return sink->tokens;
  }
  Engine& engine() { return machine_->engine; }

  base::FakeClock clock_;
  base::MemoryDisk disk_;
  std::unique_ptr<sim::Machine> machine_;
  uint64_t n_requests_ = 0;
};

TEST_F(EarlyRestoreTest, ComesUpBeforeThereIsASlot) {
  const std::vector<TokenId> prompt = tokens(161, 0);
  const std::vector<TokenId> answer = leave_in_host(prompt);
  const auto running = ask(tokens(20, 200), 100);
  step();
  const auto waiting = ask(prompt, 8);
  for (int32_t i = 0; i < 4; ++i) step();
  EXPECT_FALSE(running->is_over);
  EXPECT_EQ(engine().stats().n_waiting, 1);
  EXPECT_EQ(machine_->cache.stats().n_restores_done, 1);
  const int64_t n_rows = machine_->runner.n_rows_run();
  run();
  EXPECT_EQ(waiting->tokens, answer);
  EXPECT_EQ(waiting->usage.cached_by_tier, (std::array<int32_t, 3>{0, 160, 0}));
  EXPECT_EQ(machine_->cache.stats().n_restored_tokens[1], 160);
  // What was left of the one that ran, one row of the prompt, and its answer.
  EXPECT_LE(machine_->runner.n_rows_run() - n_rows, 100 + 1 + 8);
}

TEST_F(EarlyRestoreTest, EndsWithItsRequest) {
  const std::vector<TokenId> prompt = tokens(161, 0);
  leave_in_host(prompt);
  ask(tokens(20, 200), 100);
  engine().step();
  ask(prompt, 8);
  engine().step();  // begins
  engine().cancel(RequestId(n_requests_));
  run();
  EXPECT_EQ(machine_->cache.stats().n_in_use, 0);
}

// The clock stands still for the engine until the test has said that the deadline is over.
TEST_F(EarlyRestoreTest, ADeadlineComesWhileAllWaitForTheirKv) {
  class End final : public TokenSink {
   public:
    void push(TokenEvent&& event) override {
      if (event.kind == TokenEvent::Kind::kFinish) error.set_value(event.error);
    }
    std::promise<absl::Status> error;
  };
  const auto end = std::make_shared<End>();
  Request request;
  request.id = RequestId(999);
  request.prompt = tokens(161, 0);
  leave_in_host(request.prompt);
  request.sampling.max_tokens = 8;
  request.arrival_us = clock_.now_us();
  request.deadline_us = clock_.now_us() + 1000;
  request.sink = end;
  ASSERT_TRUE(engine().submit(std::move(request)).ok());
  std::thread thread([&] { engine().run(); });
  while (engine().stats().n_running == 0) std::this_thread::yield();
  clock_.advance_us(1000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(end->error.get_future().get()));
  engine().stop();
  thread.join();
  machine_->queue.pump_all();
}

class TightEarlyRestoreTest : public EarlyRestoreTest {
 protected:
  TightEarlyRestoreTest() : EarlyRestoreTest(26) {}
};

// 26 blocks: 10 come up for the one that waits, and the one that runs grows to 25.
TEST_F(TightEarlyRestoreTest, WhoRunsGoesBefore) {
  const std::vector<TokenId> prompt = tokens(161, 0);
  const std::vector<TokenId> answer = leave_in_host(prompt);
  const auto running = ask(tokens(20, 200), 370);
  step();
  const auto waiting = ask(prompt, 8);
  for (int32_t i = 0; i < 4; ++i) step();
  EXPECT_EQ(machine_->cache.stats().n_restores_done, 1);
  run();
  EXPECT_EQ(engine().stats().n_preemptions, 0);
  EXPECT_EQ(running->tokens.size(), 370u);
  EXPECT_EQ(waiting->tokens, answer);
  // What came up, was given back and came up again is one hit.
  EXPECT_GT(machine_->cache.stats().n_restores_done, 1);
  EXPECT_EQ(machine_->cache.stats().n_restored_tokens[1] + machine_->cache.stats().n_hit_tokens,
            160);
}

}  // namespace
}  // namespace pagoda::engine
