#include "server/client/interrupts.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace pagoda::client {
namespace {

// A handler has no other way to what it belongs to.
std::atomic<int> write_end{-1};
struct sigaction before;

void on_interrupt(int) {
  const int kept = errno;
  const char one = 1;
  // A full pipe is readable already.
  [[maybe_unused]] const ssize_t n = ::write(write_end.load(), &one, 1);
  errno = kept;
}

}  // namespace

Interrupts::Interrupts(bool enabled) {
  if (!enabled) return;
  if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    pipe_ = {-1, -1};
    return;
  }
  write_end.store(pipe_[1]);
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &before);
}

Interrupts::~Interrupts() {
  if (pipe_[0] < 0) return;
  ::sigaction(SIGINT, &before, nullptr);
  for (const int fd : pipe_) ::close(fd);
}

bool Interrupts::take() {
  if (pipe_[0] < 0) return false;
  std::array<char, 64> bytes;
  bool any = false;
  while (::read(pipe_[0], bytes.data(), bytes.size()) > 0) any = true;
  return any;
}

}  // namespace pagoda::client
