#include "server/http/server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "server/http/connection.h"

namespace pagoda::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

// When descriptors run out, the next attempt comes after so long.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Descriptors that are no connections: the model's file, the log, epoll, timers.
constexpr int64_t kOtherDescriptors = 100;

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options, const base::Clock& clock, engine::Admission& admission)
      : state(std::make_shared<ServerState>(std::move(options), clock, admission)),
        acceptor(asio::make_strand(io)),
        pause(acceptor.get_executor()) {}

  void accept() {
    acceptor.async_accept(
        asio::make_strand(io), [this](boost::system::error_code error, tcp::socket socket) {
          if (!acceptor.is_open()) return;
          if (!error && state->n_connections.load() >= state->max_connections.load()) {
            return accept();  // closes the socket
          }
          if (!error) {
            std::make_shared<Connection>(std::move(socket), state)->start();
            return accept();
          }
          pause.expires_after(kAcceptPause);
          pause.async_wait([this](boost::system::error_code cancelled) {
            if (!cancelled) accept();
          });
        });
  }

  // An I/O thread. What is thrown, as by want of memory, ends what it was thrown in.
  void run() {
    for (;;) {
      try {
        io.run();
        return;
      } catch (const std::exception& error) {
        spdlog::error("a connection failed inside: {}", error.what());
      }
    }
  }

  // Without descriptors for all of them the listener would be deaf for a while each time they run
  // out, so it takes fewer.
  void limit_connections() {
    const int64_t wanted = state->options.max_connections;
    const int64_t n_descriptors = raise_descriptor_limit();
    const int64_t possible = connections_within(n_descriptors, wanted);
    state->max_connections.store(possible);
    if (possible < wanted) {
      spdlog::warn(
          "at most {} connections at once instead of {}, since the limit of open files is {}; "
          "raise "
          "it (ulimit -Hn, LimitNOFILE)",
          possible, wanted, n_descriptors);
    }
  }

  asio::io_context io;
  // Shared with the connections, which may outlive this by a callback that still runs.
  std::shared_ptr<ServerState> state;
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::vector<std::thread> threads;
};

Server::Server(ServerOptions options, const base::Clock& clock, engine::Admission& admission)
    : impl_(std::make_unique<Impl>(std::move(options), clock, admission)) {}

Server::~Server() { stop(); }

absl::Status Server::bind(const std::string& host, uint16_t port) {
  boost::system::error_code error;
  tcp::resolver resolver(impl_->io);
  const auto found = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return base::invalid_argument("--host: {} is not an address of this machine ({})", host,
                                  error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = impl_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return absl::OkStatus();
  boost::system::error_code ignored;  // the acceptor is not used after a failed bind
  acceptor.close(ignored);
  if (error == asio::error::address_in_use) {
    return base::status_error(absl::StatusCode::kAlreadyExists,
                              "port {} on {} is in use; choose another one with --port", port,
                              host);
  }
  return base::invalid_argument("cannot listen on {} port {}: {}", host, port, error.message());
}

uint16_t Server::port() const {
  boost::system::error_code error;
  const tcp::endpoint endpoint = impl_->acceptor.local_endpoint(error);
  return error ? 0 : endpoint.port();
}

void Server::set_router(std::shared_ptr<const Router> router) {
  std::lock_guard lock(impl_->state->mutex);
  impl_->state->router = std::move(router);
}

void Server::start() {
  CHECK(impl_->threads.empty());
  CHECK(impl_->state->current_router() != nullptr);
  CHECK(impl_->state->options.make_error != nullptr);
  impl_->limit_connections();
  impl_->work.emplace(impl_->io.get_executor());
  asio::post(impl_->acceptor.get_executor(), [impl = impl_.get()] { impl->accept(); });
  for (int32_t i = 0; i < impl_->state->options.n_threads; ++i) {
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
  }
}

void Server::drain() { impl_->state->draining.store(true); }

int64_t Server::n_busy() const { return impl_->state->n_busy.load(); }

int64_t Server::n_connections() const { return impl_->state->n_connections.load(); }

void Server::stop() {
  impl_->io.stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
  boost::system::error_code ignored;  // nobody accepts any more either way
  impl_->acceptor.close(ignored);
}

int64_t raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  // A refusal leaves the old limit, which is what the next line reads.
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t connections_within(int64_t n_descriptors, int64_t wanted) {
  if (n_descriptors == 0) return wanted;
  return std::clamp<int64_t>(n_descriptors - kOtherDescriptors, 1, wanted);
}

}  // namespace pagoda::http
