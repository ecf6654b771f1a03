// A client of plain sockets for the listener's tests: it sends exactly the bytes it is told to.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::http {

class Client {
 public:
  // receive_bytes > 0: a small receive window, set before the connection is made.
  explicit Client(uint16_t port, int receive_bytes = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int result = 0;
    do {  // a signal, such as a fuzzer's clock, is no failure
      result = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    } while (result < 0 && (errno == EINTR || errno == EALREADY));
    connected_ = result == 0 || errno == EISCONN;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Reads until `text` has been received in all, the peer ends, or the time is over.
  bool read_until(std::string_view text,
                  std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (received_.find(text) == std::string::npos) {
      if (!read_some(end)) return false;
    }
    return true;
  }

  // True when the peer has ended the connection within the time.
  bool read_to_end(std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (read_some(end)) {
    }
    return ended_;
  }

  // Takes what is there, but no more than max_bytes.
  void sip(size_t max_bytes) {
    std::string buffer(max_bytes, '\0');
    const ssize_t n = ::recv(fd_, buffer.data(), max_bytes, MSG_DONTWAIT);
    if (n > 0) received_.append(buffer, 0, static_cast<size_t>(n));
  }

  void finish_sending() { ::shutdown(fd_, SHUT_WR); }
  // Leaves with a reset, as a process does that dies with unread bytes.
  void reset() {
    const linger abort{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort));
    close();
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  const std::string& received() const { return received_; }
  void forget() { received_.clear(); }

 private:
  bool read_some(std::chrono::steady_clock::time_point end) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd descriptor{fd_, POLLIN, 0};
    if (left.count() <= 0) return false;
    const int n_ready = ::poll(&descriptor, 1, static_cast<int>(left.count()));
    if (n_ready < 0 && errno == EINTR) return true;
    if (n_ready <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) return true;
    ended_ = n <= 0;
    if (n > 0) received_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  int fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string received_;
};

}  // namespace pagoda::http
