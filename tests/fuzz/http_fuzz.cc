// The listener with whole connections: whatever bytes a client sends, and however they are cut, the
// connection ends, each answer is valid HTTP and says what it should, nothing stays admitted, and a
// plain request is answered afterwards.
//
// An input is what one client sends. A byte 0xFF, which no valid request contains, is not sent: it
// cuts the input into pieces that are sent one after the other.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "server/api/errors.h"
#include "server/http/server.h"
#include "tests/unit/server/http/client.h"

namespace {

using namespace pagoda;
namespace beast = boost::beast;

constexpr std::string_view kPlain = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

// /a answers whole and in a stream, /large in pieces that a socket does not take at once, /dropped
// never.
std::shared_ptr<const http::Router> make_router() {
  auto router = std::make_shared<http::Router>();
  router->get("/a", [](std::shared_ptr<http::Exchange> e) {
    e->respond({200, "text/plain", "plain", {}});
  });
  router->post("/a", [](std::shared_ptr<http::Exchange> e) {
    std::string body = e->take_body();
    e->begin_stream({200, "text/event-stream", "", {}});
    for (size_t at = 0; at < body.size(); at += 100) e->send("data: " + body.substr(at, 100));
    e->end_stream();
  });
  router->post("/large", [](std::shared_ptr<http::Exchange> e) {
    e->respond({200, "text/plain", std::string(64 << 10, 'x'), {}});
  });
  router->post("/dropped", [](std::shared_ptr<http::Exchange>) {});
  return router;
}

// Takes one answer off the front.
void take_answer(std::string_view& bytes) {
  beast::http::response_parser<beast::http::string_body> parser;
  parser.eager(true);
  parser.body_limit(1 << 20);
  boost::system::error_code error;
  while (!parser.is_done()) {
    if (bytes.empty()) {
      parser.put_eof(error);
      CHECK(!error && parser.is_done());  // else an answer without its end
      break;
    }
    bytes.remove_prefix(parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error));
    if (error == beast::http::error::need_more) {
      CHECK(bytes.empty());
      error = {};
    }
    CHECK(!error);
  }
  const auto& answer = parser.get();
  const unsigned status = answer.result_int();
  if (status == 100) return;
  CHECK_EQ(answer.count("X-Request-Id"), size_t{1});
  CHECK_EQ(answer.count("Date"), size_t{1});
  CHECK_EQ(answer["Vary"], "Origin");
  CHECK(status == 200 || status == 204 || (status >= 400 && status <= 503));
  if (status >= 400) {
    const auto json = nlohmann::json::parse(answer.body(), nullptr, false);
    CHECK(json.is_object() && json.contains("error") && json["error"]["message"].is_string());
  }
}

// Which answers are to HEAD can't be told from outside, so then only the first is looked at.
void check_answers(std::string_view sent, std::string_view received) {
  if (sent.find("HEAD ") != std::string_view::npos) {
    CHECK(received.empty() || received.starts_with("HTTP/1.1 "));
    return;
  }
  while (!received.empty()) take_answer(received);
}

class Target {
 public:
  Target() : admission_(8, 1 << 20), server_(options(), clock_, admission_) {
    CHECK(server_.bind("127.0.0.1", 0).ok());
    server_.set_router(make_router());
    server_.start();
  }

  void feed(std::string_view bytes) {
    http::Client client(server_.port());
    CHECK(client.connected());
    std::string sent;
    while (!bytes.empty()) {
      const size_t cut = std::min(bytes.find('\xff'), bytes.size());
      client.send(bytes.substr(0, cut));
      sent += bytes.substr(0, cut);
      bytes.remove_prefix(std::min(cut + 1, bytes.size()));
    }
    client.finish_sending();
    CHECK(client.read_to_end());
    check_answers(sent, client.received());
    check_plain();
  }

 private:
  void check_plain() {
    http::Client plain(server_.port());
    plain.send(kPlain);
    CHECK(plain.read_to_end());
    CHECK(plain.received().ends_with("\r\n\r\nplain"));
    CHECK_EQ(admission_.n_admitted(), 0);
    CHECK_EQ(server_.n_busy(), 0);
  }

  static http::ServerOptions options() {
    http::ServerOptions options;
    options.n_threads = 1;
    options.max_body_bytes = 4096;
    options.max_headers = 20;
    options.max_header_bytes = 2048;
    options.cors_allow_origins = {"https://a.example"};
    options.make_error = api::listener_error;
    return options;
  }

  base::SystemClock clock_;
  engine::Admission admission_;
  http::Server server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Target target;
  target.feed({reinterpret_cast<const char*>(data), size});
  return 0;
}
