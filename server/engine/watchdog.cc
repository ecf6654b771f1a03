#include "server/engine/watchdog.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace pagoda::engine {
namespace {

constexpr int64_t kLooksPerTimeout = 4;
constexpr std::chrono::milliseconds kShortestSleep{10};

double seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

}  // namespace

Watchdog::Watchdog(const Engine& engine, const base::Clock& clock,
                   std::chrono::milliseconds step_timeout, prometheus::Counter& stuck_steps)
    : engine_(engine),
      clock_(clock),
      step_timeout_us_(std::chrono::microseconds(step_timeout).count()),
      stuck_steps_(stuck_steps) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::start() {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this] { run(); });
}

void Watchdog::run() {
  const auto sleep = std::max(std::chrono::microseconds(step_timeout_us_ / kLooksPerTimeout),
                              std::chrono::microseconds(kShortestSleep));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, sleep, [this] { return stopping_; })) {
    lock.unlock();
    check();
    lock.lock();
  }
}

bool Watchdog::check() {
  const EngineStats stats = engine_.stats();
  const int64_t now_us = clock_.now_us();
  const int64_t age_us = step_age_us(stats, now_us);
  if (is_stuck_ && stats.progress_us != stuck_since_us_) {
    is_stuck_ = false;
    spdlog::warn("the engine goes on after {:.1f} s", seconds(stats.progress_us - stuck_since_us_));
  }
  if (is_stuck_ || age_us <= step_timeout_us_) return is_stuck_;
  is_stuck_ = true;
  stuck_since_us_ = stats.progress_us;
  stuck_steps_.Increment();
  if (stats.step_rows > 0) {
    spdlog::error(
        "the engine is stuck: step {} of {} rows and {} sequences has been running for {:.1f} s "
        "(--step-timeout)",
        stats.n_steps + 1, stats.step_rows, stats.step_seqs, seconds(age_us));
  } else {
    spdlog::error("the engine is stuck: {} sequences and no step for {:.1f} s (--step-timeout)",
                  stats.n_live, seconds(age_us));
  }
  return true;
}

}  // namespace pagoda::engine
