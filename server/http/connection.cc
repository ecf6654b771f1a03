#include "server/http/connection.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "server/http/wire.h"

namespace pagoda::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kProbeAnswer{20};  // a round trip to a client that is gone
constexpr std::chrono::milliseconds kProbeInterval{1000};
constexpr std::chrono::milliseconds kLingerTimeout{5000};
constexpr int64_t kMaxDiscarded = 256 << 20;
constexpr size_t kMaxPipelined = 64 << 10;
constexpr int64_t kChunkedTicketBytes = 64 << 10;
constexpr size_t kSmallBody = 16 << 10;  // goes out with its head in one write
constexpr int64_t kMinBodyBytesPerSecond = 16 << 10;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace

Connection::Connection(tcp::socket socket, std::shared_ptr<ServerState> state)
    : state_(std::move(state)),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      probe_timer_(socket_.get_executor()) {
  state_->n_connections.fetch_add(1);
}

Connection::~Connection() {
  state_->n_connections.fetch_sub(1);
  if (answering_) state_->n_busy.fetch_sub(1);
}

void Connection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    Error ignored;  // a socket without these options still works
    self->socket_.set_option(tcp::no_delay(true), ignored);
    self->socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    self->socket_.non_blocking(true, ignored);
    self->wait_for_request();
  });
}

// ---- Reading ----

void Connection::wait_for_request() {
  if (closed_) return;
  if (buffer_.size() > 0) return read_header();
  arm(state_->options.idle_timeout);
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](Error error) {
    if (error || self->closed_) return self->close();
    self->read_header();
  });
}

void Connection::read_header() {
  arm(state_->options.header_timeout);
  parser_.emplace();
  parser_->header_limit(state_->options.max_header_bytes);
  parser_->body_limit(boost::none);  // the limit is applied here, before and while reading
  beast::http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->on_header(error); });
}

void Connection::on_header(Error error) {
  if (closed_) return;
  disarm();
  keep_alive_ = false;
  is_head_ = false;
  http_1_0_ = false;
  request_ = Request();
  match_ = Router::Match();
  body_bytes_ = -1;
  has_body_ = true;  // until the framing is understood
  if (error == beast::http::error::end_of_stream) return close();
  if (error == beast::http::error::partial_message) return close();
  if (error == beast::http::error::header_limit) {
    return refuse(431, fmt::format("The headers are longer than {} bytes.",
                                   state_->options.max_header_bytes));
  }
  if (error && error.category() == make_error_code(beast::http::error::bad_method).category()) {
    return refuse(400, fmt::format("The request is not valid HTTP/1.1: {}.", error.message()));
  }
  if (error) return close();
  take_header();
}

void Connection::take_header() {
  const auto& message = parser_->get();
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request_.headers.push_back({lower({name.data(), name.size()}), {value.data(), value.size()}});
  }
  const auto method = message.method_string();
  const auto target = message.target();
  request_.method.assign(method.data(), method.size());
  http_1_0_ = message.version() < 11;
  is_head_ = request_.method == "HEAD";
  const std::string_view id = request_.header("x-request-id");
  request_.id = is_valid_request_id(id)
                    ? std::string(id)
                    : fmt::format("req-{:x}-{:x}", state_->id_salt, state_->next_id.fetch_add(1));
  if (!check_framing()) return;
  keep_alive_ = parser_->keep_alive();
  if (!split_target({target.data(), target.size()}, request_.path, request_.query)) {
    return refuse(400, "The request target has no path.");
  }
  if (!http_1_0_ && message.count(beast::http::field::host) != 1) {
    return refuse(400, "A request of HTTP/1.1 has exactly one Host header.");
  }
  router_ = state_->current_router();
  match_ = router_->find(request_.method, request_.path);
  if (match_.route == nullptr && match_.allow.empty()) {
    return refuse(404, fmt::format("There is no route {}.", request_.path.substr(0, 200)));
  }
  if (match_.route == nullptr) {
    Response response = state_->options.make_error(
        405, fmt::format("{} is not a method of {}; it has {}.", request_.method.substr(0, 40),
                         request_.path, match_.allow));
    response.headers.push_back({"Allow", match_.allow});
    return refuse_with(std::move(response));
  }
  admit_and_read_body();
}

// Knows afterwards whether a body follows; anything ambiguous is refused, and the connection ends.
bool Connection::check_framing() {
  const std::string_view coding = request_.header("transfer-encoding");
  if (!coding.empty() && lower(coding) != "chunked") {
    refuse(501, "The only transfer coding understood is chunked.");
    return false;
  }
  const auto length = parser_->content_length();
  has_body_ = parser_->chunked() || (length.has_value() && *length > 0);
  if (length.has_value() && *length > static_cast<uint64_t>(state_->options.max_body_bytes)) {
    refuse(413, fmt::format("The body has {} bytes; at most {} are taken (--max-body-bytes).",
                            *length, state_->options.max_body_bytes));
    return false;
  }
  return true;
}

void Connection::admit_and_read_body() {
  const auto length = parser_->content_length();
  const int64_t expected = parser_->chunked()   ? kChunkedTicketBytes
                           : length.has_value() ? static_cast<int64_t>(*length)
                                                : 0;
  if (!match_.route->admitted) {
    // Such a route reads no body; if there is one, the connection ends with the answer.
    if (has_body_) keep_alive_ = false;
    return dispatch();
  }
  auto ticket = state_->admission.try_admit(expected);
  if (!ticket.ok()) return refuse(429, "The server has as many requests as it can take.");
  ticket_ = std::move(*ticket);
  ticket_bytes_ = expected;
  if (!has_body_) return dispatch();
  body_start_ = std::chrono::steady_clock::now();
  if (http_1_0_ || lower(request_.header("expect")) != "100-continue") return read_body();
  arm(state_->options.write_timeout);
  asio::async_write(socket_, asio::buffer(kContinue),
                    [self = shared_from_this()](Error error, size_t) {
                      if (error) return self->close();
                      self->read_body();
                    });
}

// A chunked body does not say how long it will be: its ticket grows with it.
bool Connection::fits_ticket(int64_t body_bytes) {
  if (body_bytes <= ticket_bytes_) return true;
  const int64_t wanted =
      std::min(std::max(body_bytes, 2 * ticket_bytes_), state_->options.max_body_bytes);
  ticket_ = engine::AdmissionTicket();
  auto ticket = state_->admission.try_admit(wanted);
  if (!ticket.ok()) return false;
  ticket_ = std::move(*ticket);
  ticket_bytes_ = wanted;
  return true;
}

void Connection::read_body() {
  if (closed_) return;
  const auto size = static_cast<int64_t>(parser_->get().body().size());
  const auto allowed = state_->options.body_timeout +
                       std::chrono::milliseconds(1000 * size / kMinBodyBytesPerSecond);
  const auto used = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - body_start_);
  arm(std::max(allowed - used, std::chrono::milliseconds(1)));
  beast::http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->on_body(error); });
}

void Connection::on_body(Error error) {
  if (closed_) return;
  if (error && error.category() == make_error_code(beast::http::error::bad_method).category() &&
      error != beast::http::error::partial_message) {
    disarm();
    return refuse(400, fmt::format("The body is not valid HTTP/1.1: {}.", error.message()));
  }
  if (error) return close();
  const auto size = static_cast<int64_t>(parser_->get().body().size());
  if (size > state_->options.max_body_bytes) {
    disarm();
    return refuse(413, fmt::format("The body has more than {} bytes (--max-body-bytes).",
                                   state_->options.max_body_bytes));
  }
  if (!fits_ticket(size)) {
    disarm();
    return refuse(429, "The server has as many requests as it can take.");
  }
  if (!parser_->is_done()) return read_body();
  disarm();
  has_body_ = false;
  dispatch();
}

void Connection::dispatch() {
  request_.body = std::move(parser_->get().body());
  if (match_.route->admitted) body_bytes_ = std::ssize(request_.body);
  begin_answer();
  answer_ticket_ = std::make_shared<engine::AdmissionTicket>(std::exchange(ticket_, {}));
  auto exchange = std::make_shared<Exchange>(shared_from_this(), std::exchange(request_, Request()),
                                             answer_ticket_);
  request_.id = exchange->request().id;
  exchange_ = exchange;
  watch();
  match_.route->handler(std::move(exchange));
}

// ---- Answering ----

// Whoever is not understood is not listened to any further.
void Connection::refuse(int status, std::string_view message) {
  if (status == 400) keep_alive_ = false;
  refuse_with(state_->options.make_error(status, message));
}

// An unread body cannot be told from the next request, so the connection ends with it.
void Connection::refuse_with(Response response) {
  ticket_ = engine::AdmissionTicket();
  if (has_body_) keep_alive_ = false;
  begin_answer();
  tell_answer(response.status, true);
  write_response(std::move(response));
}

void Connection::tell_answer(int status, bool by_listener) {
  state_->options.on_answer({.id = request_.id,
                             .route = match_.route == nullptr ? "" : match_.route->path,
                             .method = request_.method,
                             .path = request_.path,
                             .status = status,
                             .body_bytes = body_bytes_,
                             .by_listener = by_listener});
}

void Connection::begin_answer() {
  answering_ = true;
  state_->n_busy.fetch_add(1);
  streaming_ = false;
  events_ = false;
  head_sent_ = false;
  last_queued_ = false;
}

void Connection::post_response(Response response, bool by_listener) {
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), by_listener, response = std::move(response)]() mutable {
               if (self->closed_ || !self->answering_ || self->last_queued_) return;
               self->tell_answer(response.status, by_listener);
               self->write_response(std::move(response));
             });
}

void Connection::post_dropped() {
  if (state_->draining.load()) {
    return post_response(state_->options.make_error(503, "The server is shutting down."), true);
  }
  post_response(state_->options.make_error(500, "The request was dropped by a fault in here."),
                true);
}

void Connection::post_abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->streaming_ && !self->last_queued_) self->close();
  });
}

void Connection::write_response(Response response) {
  if (state_->draining.load()) keep_alive_ = false;
  queue(response_head(response, {.keep_alive = keep_alive_,
                                 .content_length = static_cast<int64_t>(response.body.size()),
                                 .request_id = request_.id,
                                 .unix_s = state_->clock.unix_s()}));
  head_sent_ = true;
  last_queued_ = true;
  if (!is_head_ && response.body.size() <= kSmallBody) {
    queue(std::move(response.body));
  } else if (!is_head_) {
    body_ = std::move(response.body);
  }
  flush();
}

void Connection::post_stream_head(Response head) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), head = std::move(head)] {
    if (self->closed_ || !self->answering_ || self->last_queued_) return;
    self->tell_answer(head.status, false);
    // Before HTTP/1.1 there are no chunks: the end of the connection ends the stream.
    if (self->http_1_0_ || self->state_->draining.load()) self->keep_alive_ = false;
    self->queue(response_head(head, {.keep_alive = self->keep_alive_,
                                     .chunked = !self->http_1_0_,
                                     .content_length = -1,
                                     .request_id = self->request_.id,
                                     .unix_s = self->state_->clock.unix_s()}));
    self->head_sent_ = true;
    self->streaming_ = true;
    self->events_ = head.content_type.starts_with("text/event-stream");
    self->flush();
  });
}

void Connection::post_events(std::string events) {
  asio::post(socket_.get_executor(),
             [self = shared_from_this(), events = std::move(events)]() mutable {
               if (self->closed_ || !self->streaming_ || self->last_queued_ || events.empty())
                 return;
               if (std::ssize(self->pending_) > self->state_->options.max_pending_bytes) {
                 return self->lose_client();
               }
               self->queue(self->http_1_0_ ? std::move(events) : chunk(events));
               self->flush();
             });
}

void Connection::post_stream_end() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->closed_ || !self->streaming_ || self->last_queued_) return;
    if (!self->http_1_0_) self->queue(std::string(kLastChunk));
    self->last_queued_ = true;
    self->flush();
  });
}

void Connection::queue(std::string bytes) {
  if (pending_.empty()) {
    pending_ = std::move(bytes);
  } else {
    pending_ += bytes;
  }
}

void Connection::flush() {
  if (write_in_flight_ || closed_) return;
  if (written_ == writing_.size()) {
    writing_ = std::exchange(pending_, std::string());
    if (writing_.empty()) writing_ = std::exchange(body_, std::string());
    written_ = 0;
  }
  if (writing_.empty()) {
    disarm();
    if (last_queued_) answer_done();
    return;
  }
  write_in_flight_ = true;
  send_queue_ = unacknowledged_bytes();
  arm(state_->options.write_timeout);
  socket_.async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](Error error, size_t bytes) { self->on_written(error, bytes); });
}

void Connection::on_written(Error error, size_t bytes) {
  write_in_flight_ = false;
  if (closed_) return;
  if (error) return lose_client();
  written_ += bytes;
  flush();
}

void Connection::answer_done() {
  if (!answering_) return;
  answering_ = false;
  answer_ticket_.reset();
  state_->n_busy.fetch_sub(1);
  probe_timer_.cancel();
  exchange_.reset();
  router_.reset();
  parser_.reset();
  if (keep_alive_) {
    wait_for_request();
  } else {
    linger();
  }
}

void Connection::lose_client() {
  if (const auto exchange = exchange_.lock()) exchange->lose_client();
  close();
}

// ---- Watching ----

void Connection::watch() {
  if (closed_) return;
  if (peer_finished_) return probe_after(kProbeAnswer);
  if (watch_pending_) return;
  watch_pending_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](Error error) {
    self->watch_pending_ = false;
    if (!error && self->answering_) self->on_readable();
  });
}

// A client that sends its next request early is read on, so that its leaving is seen behind it.
void Connection::on_readable() {
  if (closed_) return;
  Error error;
  const size_t n = socket_.read_some(buffer_.prepare(16 << 10), error);
  if (error == asio::error::would_block) return watch();
  if (error == asio::error::eof) {
    peer_finished_ = true;
    return probe();
  }
  if (error) return lose_client();
  buffer_.commit(n);
  if (buffer_.size() < kMaxPipelined) return watch();
  probe();
}

bool Connection::socket_is_dead() {
  pollfd descriptor{socket_.native_handle(), 0, 0};
  return ::poll(&descriptor, 1, 0) > 0 && (descriptor.revents & (POLLERR | POLLHUP)) != 0;
}

// The end of the client's sending may mean that it has left or that it only has nothing more to
// say. Bytes that every client ignores tell: the system of one that has left answers them with a
// reset. A write in flight is such a probe already.
void Connection::probe() {
  if (closed_ || !answering_) return;
  if (socket_is_dead()) return lose_client();
  const bool idle = !write_in_flight_ && pending_.empty() && !last_queued_;
  bool sent = false;
  if (peer_finished_ && idle && !http_1_0_) {
    if (!head_sent_) queue(std::string(kContinue));
    if (streaming_ && events_) queue(chunk(": ping\n\n"));
    sent = !pending_.empty();
    flush();
  }
  if (closed_) return;
  if (!sent) return probe_after(peer_finished_ && write_in_flight_ ? kProbeAnswer : kProbeInterval);
  probe_timer_.expires_after(kProbeAnswer);
  probe_timer_.async_wait([self = shared_from_this()](Error error) {
    if (error || self->closed_ || !self->answering_) return;
    if (self->socket_is_dead()) return self->lose_client();
    self->probe_after(kProbeInterval);
  });
}

void Connection::probe_after(std::chrono::milliseconds delay) {
  probe_timer_.expires_after(delay);
  probe_timer_.async_wait([self = shared_from_this()](Error error) {
    if (!error) self->probe();
  });
}

// ---- Ending ----

// Closing a socket with unread bytes resets it, which may take the answer from the client. So the
// sending side ends first, and what still comes is read and thrown away for a while.
void Connection::linger() {
  if (closed_) return;
  Error ignored;  // a client that is gone already needs no goodbye
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  if (peer_finished_) return close();
  arm(kLingerTimeout);
  discard();
}

void Connection::discard() {
  buffer_.clear();
  socket_.async_read_some(buffer_.prepare(64 << 10),
                          [self = shared_from_this()](Error error, size_t n) {
                            self->n_discarded_ += static_cast<int64_t>(n);
                            if (self->closed_) return;
                            if (error || self->n_discarded_ > kMaxDiscarded) return self->close();
                            self->discard();
                          });
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  disarm();
  probe_timer_.cancel();
  if (answering_) {
    state_->n_busy.fetch_sub(1);
    if (!head_sent_) tell_answer(499, false);
  }
  answering_ = false;
  ticket_ = engine::AdmissionTicket();
  answer_ticket_.reset();
  Error ignored;  // there is nobody left to tell
  socket_.close(ignored);
}

void Connection::arm(std::chrono::milliseconds timeout) {
  const uint64_t round = ++deadline_round_;
  deadline_.expires_after(timeout);
  deadline_.async_wait([self = shared_from_this(), round](Error error) {
    if (!error && round == self->deadline_round_) self->on_timeout();
  });
}

void Connection::disarm() {
  ++deadline_round_;
  deadline_.cancel();
}

// A socket takes more only when a good part of its buffer is free, so a reader that is slow but
// reads is told from one that has stopped by what the peer has acknowledged.
void Connection::on_timeout() {
  if (closed_) return;
  if (write_in_flight_) {
    const int queue = unacknowledged_bytes();
    if (queue < std::exchange(send_queue_, queue)) return arm(state_->options.write_timeout);
  }
  lose_client();
}

int Connection::unacknowledged_bytes() {
  int bytes = 0;
  return ::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace pagoda::http
