// An I/O queue that does nothing until it is told to, for the simulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/io_queue.h"

namespace pagoda::base {

// One thread, which is also the one that runs everything.
class PumpedIoQueue final : public BlockingIoQueue {
 public:
  PumpedIoQueue() = default;
  // Runs what is queued; what that gives in turn is refused, tasks aside.
  ~PumpedIoQueue() override {
    is_ending_ = true;
    pump_all();
  }
  PumpedIoQueue(const PumpedIoQueue&) = delete;
  PumpedIoQueue& operator=(const PumpedIoQueue&) = delete;

  size_t queued() const { return queue_.size(); }
  // Runs the (pick % queued())-th oldest. False: there was none.
  bool pump_one(uint64_t pick) {
    if (queue_.empty()) return false;
    const auto it = queue_.begin() + static_cast<int64_t>(pick % queue_.size());
    Queued next = std::move(*it);
    queue_.erase(it);
    next.op(next.is_refused);
    return true;
  }
  // Until nothing is queued, the oldest first.
  void pump_all() {
    while (pump_one(0)) {
    }
  }

 private:
  struct Queued {
    Op op;
    bool is_refused;
  };
  void push(Op op) override { queue_.push_back({std::move(op), is_ending_}); }

  std::vector<Queued> queue_;
  bool is_ending_ = false;
};

}  // namespace pagoda::base
