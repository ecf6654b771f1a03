// A connection to an HTTP/1.1 server, for the commands that talk to one.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/client/url.h"

namespace pagoda::client {

struct HttpRequest {
  std::string method = "GET";
  std::string path = {};     // "/v1/models"; the path of the address comes before it
  std::string body = {};     // JSON
  std::string api_key = {};  // sent as a bearer token; empty: none
};

struct HttpTimes {
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds silence{600'000};  // without a byte from the server
};

// One request at a time over a connection that is kept between them. Everything happens on the
// thread that runs the io_context, which is borrowed. No TLS.
class HttpClient {
 public:
  struct Handlers {
    // The status line and headers are there. May be empty.
    std::function<void(int status)> on_head;
    // A piece of the body as it came. False: the rest is not wanted and the connection is closed.
    std::function<bool(std::string_view piece)> on_body;
    // The last call, once for each start(). OK: the answer is complete or was not wanted to its
    // end. Else kUnavailable (no connection, or it broke), kDeadlineExceeded, kCancelled,
    // kInvalidArgument (not HTTP); the message is one sentence.
    std::function<void(absl::Status status)> on_done;
  };

  HttpClient(boost::asio::io_context& io, Url url, HttpTimes times = {});
  // A request that runs is broken off, and its handlers are called no more.
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Not while another runs. Handlers are called from within the io_context, never from here. A
  // kept connection that turns out to be closed is made anew, once.
  void start(HttpRequest request, Handlers handlers);
  // Breaks off what runs: on_done gets kCancelled, from within the io_context.
  void cancel();

 private:
  struct Impl;
  // Shared with the operations in flight.
  std::shared_ptr<Impl> impl_;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};
// The whole of a short answer. Runs the io_context, which must have nothing else to do, until it is
// there; an answer of more than max_bytes is kResourceExhausted.
absl::StatusOr<HttpAnswer> fetch(boost::asio::io_context& io, HttpClient& client,
                                 HttpRequest request, size_t max_bytes = 16 << 20);

}  // namespace pagoda::client
