// Notices an engine that does not come on: a step that is computed for longer than a time limit,
// or an engine thread that hangs elsewhere while there is work.
#pragma once

#include <prometheus/counter.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "server/engine/engine.h"

namespace pagoda::engine {

// Looks from a thread of its own, a few times in each time limit, so that an idle server stays
// idle. Of each incident it logs the beginning and the end and counts one.
class Watchdog {
 public:
  // Borrows all of them.
  Watchdog(const Engine& engine, const base::Clock& clock, std::chrono::milliseconds step_timeout,
           prometheus::Counter& stuck_steps);
  // Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins to look.
  void start();
  // One look, by that thread or a test in its place. True while the engine is stuck.
  bool check();

 private:
  void run();

  const Engine& engine_;
  const base::Clock& clock_;
  const int64_t step_timeout_us_;
  prometheus::Counter& stuck_steps_;

  // The looking thread's alone.
  bool is_stuck_ = false;
  int64_t stuck_since_us_ = 0;  // what EngineStats::progress_us was

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pagoda::engine
