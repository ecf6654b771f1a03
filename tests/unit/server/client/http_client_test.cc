#include "server/client/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagoda::client {
namespace {

// Answers one request after another with prepared bytes: on one connection as long as they say so.
class ScriptedServer {
 public:
  struct Reply {
    std::string bytes;
    bool bytewise = false;  // every byte a packet of its own
    bool closes = false;    // the connection, after it
    bool waits = false;     // for the client to close
  };

  explicit ScriptedServer(std::vector<Reply> replies)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)), replies_(std::move(replies)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    socklen_t size = sizeof(address);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }

  Url url() const { return {.host = "127.0.0.1", .port = port_, .path = ""}; }
  // After the last reply.
  const std::vector<std::string>& requests() const { return requests_; }
  int n_connections() const { return n_connections_; }

 private:
  void run() {
    int connection = -1;
    for (const Reply& reply : replies_) {
      // A client that closed the connection comes again with the next request.
      while (connection < 0 || !read_request(connection)) {
        if (connection >= 0) ::close(connection);
        connection = ::accept(fd_, nullptr, nullptr);
        if (connection < 0) return;
        ++n_connections_;
      }
      const size_t step = reply.bytewise ? 1 : reply.bytes.size() + 1;
      for (size_t at = 0; at < reply.bytes.size(); at += step) {
        const size_t n = std::min(step, reply.bytes.size() - at);
        if (::send(connection, reply.bytes.data() + at, n, MSG_NOSIGNAL) < 0) break;
      }
      char byte = 0;
      if (reply.waits) (void)!::recv(connection, &byte, 1, 0);
      if (!reply.closes) continue;
      ::close(connection);
      connection = -1;
    }
    if (connection >= 0) ::close(connection);
  }

  // Bodies here have no "\r\n\r\n" and end in "}".
  bool read_request(int connection) {
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos ||
           (request.starts_with("POST") && !request.ends_with("}"))) {
      char buffer[4096];
      const ssize_t n = ::recv(connection, buffer, sizeof(buffer), 0);
      if (n <= 0) return false;
      request.append(buffer, static_cast<size_t>(n));
    }
    requests_.push_back(std::move(request));
    return true;
  }

  int fd_;
  uint16_t port_ = 0;
  const std::vector<Reply> replies_;
  std::vector<std::string> requests_;
  int n_connections_ = 0;
  std::thread thread_;
};

const std::string kHello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const std::string kChunked =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
    "6\r\ndata: \r\n3;x=y\r\na\n\n\r\n0\r\n\r\n";

absl::StatusOr<HttpAnswer> get(ScriptedServer& server, HttpTimes times = {}, size_t most = 1000) {
  boost::asio::io_context io;
  HttpClient client(io, server.url(), times);
  return fetch(io, client, {.path = "/x", .api_key = "key"}, most);
}

TEST(HttpClient, AnswersOfBothFramings) {
  for (const std::string& reply : {kHello, kChunked}) {
    for (const bool bytewise : {false, true}) {
      ScriptedServer server({{.bytes = reply, .bytewise = bytewise}});
      const auto answer = get(server);
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(answer->status, 200);
      EXPECT_EQ(answer->body, reply == kHello ? "hello" : "data: a\n\n");
    }
  }
  ScriptedServer until_end({{.bytes = "HTTP/1.1 404 No\r\n\r\nrest", .closes = true}});
  const auto answer = get(until_end);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "rest");
}

TEST(HttpClient, OneConnectionServesSeveralRequests) {
  ScriptedServer server({{.bytes = kHello}, {.bytes = kChunked}, {.bytes = kHello}});
  boost::asio::io_context io;
  HttpClient client(io, server.url());
  for (int i = 0; i < 3; ++i) {
    const auto answer = fetch(io, client, {.method = "POST", .path = "/x", .body = "{}"});
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  EXPECT_EQ(server.n_connections(), 1);
  EXPECT_NE(server.requests()[0].find("POST /x HTTP/1.1\r\n"), std::string::npos);
  EXPECT_NE(server.requests()[0].find("Content-Length: 2\r\n"), std::string::npos);
}

TEST(HttpClient, AKeptConnectionThatWasClosedIsMadeAnew) {
  ScriptedServer server({{.bytes = kHello, .closes = true}, {.bytes = kHello}});
  boost::asio::io_context io;
  HttpClient client(io, server.url());
  for (int i = 0; i < 2; ++i) {
    const auto answer = fetch(io, client, {.path = "/x"});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->body, "hello");
  }
  EXPECT_EQ(server.n_connections(), 2);
}

TEST(HttpClient, WhatGoesWrongHasAKind) {
  const std::pair<std::string, absl::StatusCode> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", absl::StatusCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
       absl::StatusCode::kUnavailable},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
       absl::StatusCode::kInvalidArgument},
      {"HTTP/1.1 200", absl::StatusCode::kUnavailable},
      {"", absl::StatusCode::kUnavailable},
      {"SSH-2.0-OpenSSH\r\n", absl::StatusCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n",
       absl::StatusCode::kInvalidArgument},
  };
  for (const auto& [bytes, code] : cases) {
    ScriptedServer server({{.bytes = bytes, .closes = true}});
    const auto answer = get(server);
    EXPECT_EQ(answer.status().code(), code) << bytes.substr(0, 80) << ": " << answer.status();
    EXPECT_NE(base::message_of(answer.status()).find("http://127.0.0.1:"), std::string::npos);
  }
}

TEST(HttpClient, NobodyThereAndSilence) {
  Url nobody{.host = "127.0.0.1", .port = 1, .path = ""};
  boost::asio::io_context io;
  HttpClient client(io, nobody);
  EXPECT_EQ(fetch(io, client, {.path = "/"}).status().code(), absl::StatusCode::kUnavailable);
  ScriptedServer silent({{.bytes = "HTTP/1.1 200 OK\r\n", .closes = true, .waits = true}});
  EXPECT_EQ(get(silent, {.silence = std::chrono::milliseconds(50)}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(HttpClient, ALengthThatIsOnlyClaimedTakesNoMemory) {
  ScriptedServer server(
      {{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\nx",
        .closes = true}});
  EXPECT_EQ(get(server).status().code(), absl::StatusCode::kUnavailable);
  ScriptedServer large(
      {{.bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + std::string(2000, 'x')}});
  EXPECT_EQ(get(large).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(HttpClient, ARequestCanBeBrokenOffAndAnotherOneMade) {
  ScriptedServer server(
      {{.bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        .closes = true,
        .waits = true},
       {.bytes = kHello}});
  boost::asio::io_context io;
  HttpClient client(io, server.url());
  absl::Status status;
  int n_done = 0;
  client.start({.path = "/x"}, {.on_head = {},
                                .on_body =
                                    [&](std::string_view) {
                                      client.cancel();
                                      return true;
                                    },
                                .on_done =
                                    [&](absl::Status end) {
                                      status = std::move(end);
                                      ++n_done;
                                    }});
  io.run();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(n_done, 1);
  const auto answer = fetch(io, client, {.path = "/x"});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "hello");
}

}  // namespace
}  // namespace pagoda::client
