// SIGINT as something to wait for, in place of the end of the process.
#pragma once

#include <array>

namespace pagoda::client {

// While it lives, a SIGINT makes fd() readable. One object at a time; one thread waits.
class Interrupts {
 public:
  // Not enabled: SIGINT stays what it is, and fd() is -1.
  explicit Interrupts(bool enabled);
  ~Interrupts();  // SIGINT is again what it was
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // -1 also when the system gave no pipe.
  int fd() const { return pipe_[0]; }
  // True, once, when there was one since the last call.
  bool take();

 private:
  std::array<int, 2> pipe_ = {-1, -1};
};

}  // namespace pagoda::client
