#include "server/signals.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <thread>
#include <utility>

namespace pagoda {

struct Signals::Impl {
  explicit Impl(std::function<void(int, int)> on_signal_in)
      : set(io, SIGINT, SIGTERM), on_signal(std::move(on_signal_in)) {}

  void wait() {
    set.async_wait([this](boost::system::error_code error, int number) {
      if (error) return;
      on_signal(number, ++count);
      wait();
    });
  }

  boost::asio::io_context io;
  boost::asio::signal_set set;
  std::function<void(int, int)> on_signal;
  int count = 0;
  std::thread thread;
};

Signals::Signals(std::function<void(int, int)> on_signal)
    : impl_(std::make_unique<Impl>(std::move(on_signal))) {
  impl_->wait();
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

Signals::~Signals() {
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace pagoda
