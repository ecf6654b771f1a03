#include "server/engine/watchdog.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "tests/sim/hash_runner.h"

namespace pagoda::engine {
namespace {

constexpr int64_t kSecond = 1'000'000;

class NoSink final : public TokenSink {
 public:
  void push(TokenEvent&& event) override { (void)event; }
};

// A model whose forward pass waits at a gate, if it is told to.
class GatedRunner final : public model::ModelRunner {
 public:
  explicit GatedRunner(const sim::HashRunnerConfig& config) : inner_(config) {}

  const model::KvShape& kv_shape() const override { return inner_.kv_shape(); }
  int32_t n_vocab() const override { return inner_.n_vocab(); }
  int32_t n_slots() const override { return inner_.n_slots(); }
  int32_t max_rows() const override { return inner_.max_rows(); }
  void set_kv(const KvView& kv) override { inner_.set_kv(kv); }
  void copy_block(BlockId from, BlockId to) override { inner_.copy_block(from, to); }
  model::Ticket forward(const model::StepInputs& inputs) override {
    std::unique_lock lock(mutex_);
    is_inside_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    is_inside_ = false;
    return inner_.forward(inputs);
  }
  model::Ticket sample(model::Ticket step, const model::SampleInputs& inputs) override {
    return inner_.sample(step, inputs);
  }
  std::span<const ops::SampleResult> fetch(model::Ticket draws) override {
    return inner_.fetch(draws);
  }

  void set_open(bool is_open) {
    std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  void wait_until_inside() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_inside_; });
  }

 private:
  sim::HashRunner inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;    // guarded by mutex_
  bool is_inside_ = false;  // guarded by mutex_
};

sim::HashRunnerConfig runner_config() {
  sim::HashRunnerConfig config;
  config.n_blocks = 16;
  config.n_slots = 2;
  config.max_rows = 32;
  return config;
}

cache::KvCacheConfig cache_config() {
  cache::KvCacheConfig config;
  config.n_blocks = 16;
  return config;
}

EngineConfig engine_config() {
  EngineConfig config;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 32;
  config.max_model_len = 256;
  return config;
}

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    log_->set_pattern("%l %v");
    old_ = spdlog::default_logger();
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log_));
  }
  ~WatchdogTest() override { spdlog::set_default_logger(old_); }

  void submit(uint64_t id, int32_t prompt_len) {
    Request request;
    request.id = RequestId(id);
    request.prompt.assign(static_cast<size_t>(prompt_len), 7);
    request.sampling.max_tokens = 2;
    request.sampling.ignore_eos = true;
    request.sink = std::make_shared<NoSink>();
    ASSERT_TRUE(engine_.submit(std::move(request)).ok());
  }
  int64_t age_us() const { return step_age_us(engine_.stats(), clock_.now_us()); }
  std::vector<std::string> lines() const { return log_->last_formatted(); }

  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> log_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(16);
  std::shared_ptr<spdlog::logger> old_;
  base::FakeClock clock_;
  prometheus::Registry registry_;
  Metrics metrics_{registry_};
  GatedRunner runner_{runner_config()};
  cache::KvCache cache_{cache_config()};
  Engine engine_{engine_config(), runner_, cache_, clock_, metrics_};
  Watchdog watchdog_{engine_, clock_, std::chrono::seconds(60), metrics_.stuck_steps};
};

TEST_F(WatchdogTest, AnIdleEngineIsNotStuck) {
  clock_.advance_us(3600 * kSecond);
  EXPECT_EQ(age_us(), 0);
  EXPECT_FALSE(watchdog_.check());
  runner_.set_open(true);
  submit(1, 4);
  EXPECT_EQ(age_us(), 0);  // it begins with the work, however long nothing was to be done
  while (engine_.step()) {
  }
  clock_.advance_us(3600 * kSecond);
  EXPECT_EQ(age_us(), 0);
  EXPECT_FALSE(watchdog_.check());
}

TEST_F(WatchdogTest, AStuckStepIsToldOnceAndRecovers) {
  submit(1, 20);
  submit(2, 5);
  std::thread engine_thread([this] { engine_.run(); });
  runner_.wait_until_inside();
  clock_.advance_us(60 * kSecond);
  EXPECT_FALSE(watchdog_.check());  // at the limit, not above it
  clock_.advance_us(kSecond);
  EXPECT_TRUE(watchdog_.check());
  EXPECT_EQ(age_us(), 61 * kSecond);
  clock_.advance_us(600 * kSecond);
  EXPECT_TRUE(watchdog_.check());
  EXPECT_EQ(metrics_.stuck_steps.Value(), 1);
  EXPECT_EQ(lines().size(), 1U);
  // A scrape and a look at the counts work meanwhile.
  EXPECT_EQ(metrics_.requests.n_running(), 2);
  EXPECT_EQ(engine_.stats().step_rows, 25);
  EXPECT_FALSE(registry_.Collect().empty());

  runner_.set_open(true);
  engine_.stop();
  engine_thread.join();
  EXPECT_FALSE(watchdog_.check());
  EXPECT_EQ(age_us(), 0);
  EXPECT_EQ(metrics_.stuck_steps.Value(), 1);
  ASSERT_EQ(lines().size(), 2U);
  for (const char* part : {"error", "25 rows", "2 sequences", "61.0 s", "--step-timeout"}) {
    EXPECT_NE(lines()[0].find(part), std::string::npos) << lines()[0];
  }
  EXPECT_NE(lines()[1].find("goes on after 661.0 s"), std::string::npos) << lines()[1];
}

TEST_F(WatchdogTest, AnEngineThatNobodyRunsIsStuckToo) {
  submit(1, 4);
  clock_.advance_us(61 * kSecond);
  EXPECT_TRUE(watchdog_.check());
  EXPECT_NE(lines().at(0).find("1 sequences and no step"), std::string::npos) << lines()[0];
  runner_.set_open(true);
  while (engine_.step()) {
  }
  EXPECT_FALSE(watchdog_.check());
  submit(2, 4);
  clock_.advance_us(61 * kSecond);
  EXPECT_TRUE(watchdog_.check());  // a second incident
  EXPECT_EQ(metrics_.stuck_steps.Value(), 2);
  while (engine_.step()) {
  }
}

TEST_F(WatchdogTest, ItsThreadEnds) {
  Watchdog watchdog(engine_, clock_, std::chrono::hours(1), metrics_.stuck_steps);
  watchdog.start();
}

}  // namespace
}  // namespace pagoda::engine
