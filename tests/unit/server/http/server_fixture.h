// A listener on a free port for the tests of this folder, and the requests that they send.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "server/api/errors.h"
#include "server/http/exchange.h"
#include "server/http/server.h"
#include "tests/unit/server/http/client.h"

namespace pagoda::http {

using std::chrono::milliseconds;

inline constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(headers) + "\r\n" + std::string(body);
}

inline size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// True once `condition` holds; asked for up to five seconds.
template <typename F>
bool eventually(F condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

// A listener with routes that answer at once (/hello, /echo), when the test says (/held, /stream),
// and never (/dropped).
class HttpServer : public testing::Test {
 protected:
  void start(ServerOptions options = {}, int64_t max_requests = 100) {
    admission_ = std::make_unique<engine::Admission>(max_requests, 1 << 20);
    options.make_error = api::listener_error;
    server_ = std::make_unique<Server>(std::move(options), clock_, *admission_);
    ASSERT_TRUE(server_->bind("127.0.0.1", 0).ok());
    server_->set_router(routes());
    server_->start();
  }
  void TearDown() override {
    held_.clear();
    if (server_ != nullptr) server_->stop();
    server_.reset();
  }

  std::shared_ptr<const Router> routes() {
    auto router = std::make_shared<Router>();
    router->get("/hello", [](std::shared_ptr<Exchange> e) {
      e->respond({200, "text/plain", "hello", {}});
    });
    router->post("/echo", [](std::shared_ptr<Exchange> e) {
      std::string body = e->take_body();
      e->respond({200, "text/plain", std::move(body), {}});
    });
    const auto hold = [this](std::shared_ptr<Exchange> e) {
      e->on_client_gone([this] { n_gone_.fetch_add(1); });
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(e));
      n_held_.store(static_cast<int>(held_.size()));
    };
    router->post("/held", hold);
    router->post("/dropped", [](std::shared_ptr<Exchange>) {});
    return router;
  }

  Exchange& held(size_t i) {
    std::lock_guard lock(mutex_);
    return *held_.at(i);
  }
  bool wait_held(int n) {
    return eventually([&] { return n_held_.load() == n; });
  }
  uint16_t port() const { return server_->port(); }

  base::SystemClock clock_;
  std::unique_ptr<engine::Admission> admission_;
  std::unique_ptr<Server> server_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::atomic<int> n_held_{0};
  std::atomic<int> n_gone_{0};
};

}  // namespace pagoda::http
