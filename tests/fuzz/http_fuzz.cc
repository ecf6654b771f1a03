// The listener: whatever bytes a connection brings, it ends, nothing stays admitted, and a plain
// request is answered afterwards.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "server/api/errors.h"
#include "server/http/server.h"
#include "tests/unit/server/http/client.h"

namespace {

using namespace pagoda;

class Target {
 public:
  Target() : admission_(8, 1 << 20), server_(options(), clock_, admission_) {
    auto router = std::make_shared<http::Router>();
    router->get("/a", [](std::shared_ptr<http::Exchange> e) {
      e->respond({200, "", "plain", {}});
    });
    router->post("/a", [](std::shared_ptr<http::Exchange> e) {
      std::string body = e->take_body();
      e->begin_stream({200, "text/event-stream", "", {}});
      e->send(std::move(body));
      e->end_stream();
    });
    CHECK(server_.bind("127.0.0.1", 0).ok());
    server_.set_router(std::move(router));
    server_.start();
  }

  void feed(std::string_view bytes) {
    http::Client client(server_.port());
    client.send(bytes);
    client.finish_sending();
    CHECK(client.read_to_end());
    http::Client plain(server_.port());
    plain.send("GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    CHECK(plain.read_to_end());
    CHECK(plain.received().ends_with("plain"));
    CHECK_EQ(admission_.n_admitted(), 0);
  }

 private:
  static http::ServerOptions options() {
    http::ServerOptions options;
    options.n_threads = 1;
    options.max_body_bytes = 4096;
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
