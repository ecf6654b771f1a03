// The part of a connection that answers, watches its client and ends.
#include <fmt/format.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/http/connection.h"
#include "server/http/wire.h"

namespace pagoda::http {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kProbeAnswer{20};  // a round trip to a client that is gone
constexpr std::chrono::milliseconds kProbeInterval{1000};
constexpr std::chrono::milliseconds kLingerTimeout{5000};
constexpr int64_t kMaxDiscarded = 256 << 20;
constexpr size_t kMaxPipelined = 64 << 10;
constexpr size_t kSmallBody = 16 << 10;  // goes out with its head in one write
constexpr std::string_view kPing = ": ping\n\n";

}  // namespace

// ---- Answering ----

void Connection::refuse(int status, std::string_view message) {
  answer_directly(state_->options.make_error(status, message));
}

// Whoever is not understood is not listened to any further.
void Connection::refuse_and_close(int status, std::string_view message) {
  keep_alive_ = false;
  refuse(status, message);
}

// Without a handler. An unread body cannot be told from the next request: it is read past, or the
// connection ends with it.
void Connection::answer_directly(Response response) {
  ticket_ = engine::AdmissionTicket();
  if (has_body_) {
    const std::optional<size_t> n_bytes = skippable_body();
    keep_alive_ = keep_alive_ && n_bytes.has_value();
    if (keep_alive_) skip_left_ = *n_bytes;
  }
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

// A client of HTTP/1.0 expects an end unless it is told.
void Connection::add_headers(Response& response) {
  if (http_1_0_ && keep_alive_) response.headers.push_back({"Connection", "keep-alive"});
  state_->cors.add_headers(origin_, response.headers);
}

void Connection::write_response(Response response) {
  if (state_->draining.load()) keep_alive_ = false;
  add_headers(response);
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
  asio::post(socket_.get_executor(), [self = shared_from_this(), head = std::move(head)]() mutable {
    if (self->closed_ || !self->answering_ || self->last_queued_) return;
    self->tell_answer(head.status, false);
    // Before HTTP/1.1 there are no chunks: the end of the connection ends the stream.
    if (self->http_1_0_ || self->state_->draining.load()) self->keep_alive_ = false;
    self->add_headers(head);
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
  request_ = Request();
  writing_ = std::string();  // what it held may have been large
  written_ = 0;
  if (!keep_alive_) return linger();
  if (skip_left_ == 0) return wait_for_request();
  arm(state_->options.body_timeout);
  skip_body();
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
  if (buffer_.size() >= kMaxPipelined) return probe();
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
  if (peer_finished_ && idle) {
    if (!head_sent_ && !http_1_0_) queue(std::string(kContinue));
    if (streaming_ && events_) queue(http_1_0_ ? std::string(kPing) : chunk(kPing));
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
  if (reading_ != Reading::kNothing) {
    // The read's handler answers.
    timed_out_ = true;
    Error ignored;  // nothing to cancel means that the handler is on its way
    socket_.cancel(ignored);
    return;
  }
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
