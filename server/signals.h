// SIGINT and SIGTERM as calls on a thread of its own.
#pragma once

#include <functional>
#include <memory>

namespace pagoda {

class Signals {
 public:
  // `on_signal` gets the signal's number and how many came so far, itself included. It runs on the
  // thread of this object, where everything may be called that may be called on any thread.
  explicit Signals(std::function<void(int number, int count)> on_signal);
  // No call comes after it.
  ~Signals();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagoda
