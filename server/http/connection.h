// One client connection: requests are read and answered in order, one at a time.
//
//   idle ─▶ head ─▶ body ─▶ answering ─▶ idle …
//             └───────┴──refusal──┴──┬─▶ lingering ─▶ closed
//                                    └─▶ skipping a small body ─▶ idle …
//
// Everything runs on the connection's strand, except what says otherwise.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/cors.h"
#include "server/http/exchange.h"
#include "server/http/head.h"
#include "server/http/router.h"
#include "server/http/server.h"

namespace pagoda::http {

// What the connections of a server have in common. Any thread.
struct ServerState {
  ServerState(ServerOptions options_in, const base::Clock& clock_in,
              engine::Admission& admission_in)
      : options(std::move(options_in)),
        cors(options.cors_allow_origins),
        max_connections(options.max_connections),
        clock(clock_in),
        admission(admission_in) {}

  std::shared_ptr<const Router> current_router() {
    std::lock_guard lock(mutex);
    return router;
  }

  const ServerOptions options;
  const CorsPolicy cors;
  std::atomic<int64_t> max_connections;
  const base::Clock& clock;
  engine::Admission& admission;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> n_busy{0};
  std::atomic<int64_t> n_connections{0};
  std::atomic<uint64_t> next_id{0};
  const uint64_t id_salt = static_cast<uint64_t>(clock.unix_s());

  std::mutex mutex;
  // Shared: a request that is being answered keeps the routes it was found in.
  std::shared_ptr<const Router> router;  // guarded by mutex
};

// What is read ahead of what is understood. Headers and pipelined requests take less; whatever of
// the framing of a body does not fit (extensions of chunks, trailers) is refused.
inline constexpr size_t kMaxBuffered = 128 << 10;

// Shared: pending operations and exchanges keep it alive; the last of them closes the socket.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ServerState> state);
  ~Connection();

  void start();

  // Any thread; called by the exchange that is being answered.
  // by_listener: no handler made it.
  void post_response(Response response, bool by_listener = false);
  void post_dropped();
  void post_abort();
  void post_stream_head(Response head);
  void post_events(std::string events);
  void post_stream_end();

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Reading (connection.cc). Whatever takes or refuses the request ends this part.
  void wait_for_request();
  void read_head();
  void scan_head();
  void on_head_bytes(Error error, size_t bytes);
  void parse_head(std::string_view bytes);
  void take_head();
  bool check_framing();
  bool check_target();
  void answer_options();
  void refuse_unroutable();
  void admit_and_read_body();
  bool fits_ticket(int64_t body_bytes);
  void read_body();
  void on_body(Error error);
  void dispatch();
  // The length of an unread body that may be read past; none: the connection has to end.
  std::optional<size_t> skippable_body() const;
  void skip_body();

  // Answering (connection_answer.cc).
  void refuse(int status, std::string_view message);
  void refuse_and_close(int status, std::string_view message);
  void answer_directly(Response response);
  void begin_answer();
  void tell_answer(int status, bool by_listener);
  void write_response(Response response);
  void add_headers(Response& response);
  void queue(std::string bytes);
  void flush();
  void on_written(Error error, size_t bytes);
  void answer_done();
  void lose_client();

  // Watching the client while it waits for its answer.
  void watch();
  void on_readable();
  bool socket_is_dead();
  void probe();
  void probe_after(std::chrono::milliseconds delay);

  // Ending.
  void linger();
  void discard();
  void close();
  void arm(std::chrono::milliseconds timeout);
  void disarm();
  void on_timeout();
  int unacknowledged_bytes();

  const std::shared_ptr<ServerState> state_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer probe_timer_;
  uint64_t deadline_round_ = 0;  // a wait of an earlier round is void

  boost::beast::flat_buffer buffer_{kMaxBuffered};
  std::optional<Parser> parser_;

  HeadScanner scanner_{0, 0};
  enum class Reading : uint8_t { kNothing, kHead, kBody };
  Reading reading_ = Reading::kNothing;
  bool timed_out_ = false;  // what is being read came too late; its handler is about to run

  // Of the current request.
  std::shared_ptr<const Router> router_;
  Router::Match match_;
  Request request_;
  engine::AdmissionTicket ticket_;
  // Shared with the exchange: the place is free when the work is over and the answer is written.
  std::shared_ptr<engine::AdmissionTicket> answer_ticket_;
  int64_t ticket_bytes_ = 0;
  std::chrono::steady_clock::time_point body_start_;
  bool has_body_ = false;    // and it is not read yet
  size_t skip_left_ = 0;     // bytes of an unread body that are thrown away after the answer
  std::string origin_;       // of the page that asks, for CORS
  int64_t body_bytes_ = -1;  // of a body that was read whole
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool is_head_ = false;
  std::weak_ptr<Exchange> exchange_;

  // Of the current answer.
  bool answering_ = false;  // a request is with its handler, or its answer is being written
  bool streaming_ = false;
  bool events_ = false;  // the stream carries server-sent events
  bool head_sent_ = false;
  bool last_queued_ = false;
  std::string pending_;
  std::string body_;  // of a whole answer, after pending_; apart, so that it is not copied
  std::string writing_;
  size_t written_ = 0;
  bool write_in_flight_ = false;
  int send_queue_ = 0;  // unacknowledged_bytes when the deadline was set

  bool watch_pending_ = false;
  bool peer_finished_ = false;  // the client sends nothing any more; it may still read
  bool closed_ = false;
  int64_t n_discarded_ = 0;
};

}  // namespace pagoda::http
