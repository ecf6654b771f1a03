// The HTTP/1.1 listener and its I/O threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "server/engine/admission.h"
#include "server/http/message.h"
#include "server/http/router.h"

namespace pagoda::http {

// Connections at once, idle ones included: room for ten thousand idle ones and their observers,
// while their descriptors and buffers stay bounded.
inline constexpr int64_t kMaxConnections = 12'000;

// An answer whose head is about to be written. The views live for the call.
struct Answered {
  std::string_view id;
  std::string_view route;  // the path of its route; empty: it has none
  std::string_view method;
  std::string_view path;     // as the client wrote it
  int status = 200;          // 499: the client left before there was an answer
  int64_t body_bytes = -1;   // of the request that came to a handler and has a body
  bool by_listener = false;  // it did not come from a handler
};

struct ServerOptions {
  int32_t n_threads = 2;
  // One more is accepted and closed at once, so that it is told and does not wait in the kernel.
  // Fewer where the limit of open descriptors allows fewer; the start says so.
  int64_t max_connections = kMaxConnections;
  uint32_t max_header_bytes = 16 << 10;  // the request line included
  size_t max_headers = 100;
  int64_t max_body_bytes = 32 << 20;
  // What a reader may be behind by. A stream that is further behind when more is to be sent has
  // lost its client.
  int64_t max_pending_bytes = 8 << 20;
  // What the system holds of an answer that its client does not take. The system's own choice
  // grows to megabytes, behind which a reader that has stopped would not be noticed.
  int send_buffer_bytes = 256 << 10;
  // From the first byte of a head to its last.
  std::chrono::milliseconds header_timeout{30'000};
  // A body must arrive within this time and one second for each 16 KiB of it.
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds idle_timeout{120'000};
  // A write that makes no progress for so long has lost its client.
  std::chrono::milliseconds write_timeout{30'000};
  // Pages of these origins may read answers: exact ones, or "*" (cors.h); empty: none.
  std::vector<std::string> cors_allow_origins = {};
  // The body of an error that the listener itself answers. Needed to start.
  std::function<Response(int status, std::string_view message)> make_error = {};
  // Told of every answer, on an I/O thread; must not wait.
  std::function<void(const Answered&)> on_answer = [](const Answered&) {};
};

// Any thread may call. Owns its threads; handlers run on them.
class Server {
 public:
  // Borrows the clock and the admission.
  Server(ServerOptions options, const base::Clock& clock, engine::Admission& admission);
  // Stops.
  ~Server();

  // Binds and listens; port 0 takes a free one. kAlreadyExists when the port is in use,
  // kInvalidArgument for a host that has no address.
  absl::Status bind(const std::string& host, uint16_t port);
  uint16_t port() const;

  // Replaces all routes; requests that are being answered keep theirs.
  void set_router(std::shared_ptr<const Router> router);
  // Raises the limit of open descriptors and begins to accept connections.
  void start();
  // From now on every answer closes its connection.
  void drain();
  // Answers that are not yet written to the end.
  int64_t n_busy() const;
  // Connections that are open, idle ones included.
  int64_t n_connections() const;
  // Closes everything and joins the threads. Handlers run no more after it.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Raises the limit of open descriptors to what the system allows and returns it; 0 if the system
// does not tell.
int64_t raise_descriptor_limit();

// How many of the wanted connections so many descriptors allow; some are kept back for files.
int64_t connections_within(int64_t n_descriptors, int64_t wanted);

}  // namespace pagoda::http
