#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/tcp.h>

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

constexpr int64_t kChunkedTicketBytes = 64 << 10;
constexpr int64_t kMinBodyBytesPerSecond = 16 << 10;
constexpr size_t kHeadReadBytes = 4 << 10;
// Reading such a body past costs less than another connection would.
constexpr uint64_t kMaxSkippedBody = 256 << 10;
constexpr size_t kSkipReadBytes = 16 << 10;

// A peer whose machine is gone sends no end. The system asks after a minute of silence and gives up
// after three more questions.
constexpr int kKeepAliveIdle_s = 60;
constexpr int kKeepAliveInterval_s = 10;
constexpr int kKeepAliveProbes = 3;

using KeepAliveIdle = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPIDLE>;
using KeepAliveInterval = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPINTVL>;
using KeepAliveCount = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_KEEPCNT>;

std::string_view view(const beast::flat_buffer& buffer) {
  const auto data = buffer.data();
  return {static_cast<const char*>(data.data()), data.size()};
}

bool is_http_error(const boost::system::error_code& error) {
  return error && error.category() == make_error_code(beast::http::error::bad_method).category();
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
    tcp::socket& socket = self->socket_;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    socket.set_option(KeepAliveIdle(kKeepAliveIdle_s), ignored);
    socket.set_option(KeepAliveInterval(kKeepAliveInterval_s), ignored);
    socket.set_option(KeepAliveCount(kKeepAliveProbes), ignored);
    socket.set_option(asio::socket_base::send_buffer_size(self->state_->options.send_buffer_bytes),
                      ignored);
    socket.non_blocking(true, ignored);
    self->wait_for_request();
  });
}

// An idle connection holds as little memory as can be: there may be ten thousand of them.
void Connection::wait_for_request() {
  if (closed_) return;
  while (view(buffer_).starts_with("\r\n")) buffer_.consume(2);
  if (buffer_.size() > 0) return read_head();
  buffer_.shrink_to_fit();
  arm(state_->options.idle_timeout);
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](Error error) {
    if (error || self->closed_) return self->close();
    self->read_head();
  });
}

void Connection::read_head() {
  arm(state_->options.header_timeout);
  reading_ = Reading::kHead;
  scanner_ = HeadScanner(state_->options.max_header_bytes, state_->options.max_headers);
  request_ = Request();
  origin_.clear();
  keep_alive_ = false;
  is_head_ = false;
  http_1_0_ = false;
  match_ = Router::Match();
  body_bytes_ = -1;
  has_body_ = true;  // until the framing is understood
  scan_head();
}

void Connection::scan_head() {
  const std::string_view bytes = view(buffer_);
  const HeadScanner::Result result = scanner_.scan(bytes);
  if (result == HeadScanner::Result::kIncomplete) {
    return socket_.async_read_some(
        buffer_.prepare(kHeadReadBytes),
        [self = shared_from_this()](Error error, size_t n) { self->on_head_bytes(error, n); });
  }
  reading_ = Reading::kNothing;
  disarm();
  request_.id = !scanner_.request_id().empty()
                    ? scanner_.request_id()
                    : fmt::format("req-{:x}-{:x}", state_->id_salt, state_->next_id.fetch_add(1));
  if (result == HeadScanner::Result::kRefused) {
    return refuse_and_close(scanner_.status(), scanner_.message());
  }
  parse_head(bytes.substr(scanner_.begin(), scanner_.end() - scanner_.begin()));
}

void Connection::on_head_bytes(Error error, size_t bytes) {
  if (closed_) return;
  if (std::exchange(timed_out_, false)) {
    reading_ = Reading::kNothing;
    request_.id = fmt::format("req-{:x}-{:x}", state_->id_salt, state_->next_id.fetch_add(1));
    return refuse_and_close(408, fmt::format("The headers took longer than {} ms.",
                                             state_->options.header_timeout.count()));
  }
  if (error) return close();
  buffer_.commit(bytes);
  scan_head();
}

void Connection::parse_head(std::string_view bytes) {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(bytes.size()));
  parser_->body_limit(boost::none);  // the limit is applied here, before and while reading
  Error error;
  parser_->put(asio::buffer(bytes.data(), bytes.size()), error);
  buffer_.consume(scanner_.end());
  if (!error && parser_->is_header_done()) return take_head();
  const std::string why = error ? error.message() : "the headers have no end";
  refuse_and_close(400, fmt::format("The request is not valid HTTP/1.1: {}.", why));
}

void Connection::take_head() {
  const auto& message = parser_->get();
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request_.headers.push_back({lower({name.data(), name.size()}), {value.data(), value.size()}});
  }
  const auto method = message.method_string();
  request_.method.assign(method.data(), method.size());
  http_1_0_ = message.version() < 11;
  is_head_ = request_.method == "HEAD";
  origin_ = request_.header("origin");
  if (!check_framing() || !check_target()) return;
  keep_alive_ = parser_->keep_alive();
  router_ = state_->current_router();
  match_ = router_->find(request_.method, request_.path);
  if (request_.method == "OPTIONS") return answer_options();
  if (match_.route == nullptr) return refuse_unroutable();
  const std::string_view expect = request_.header("expect");
  if (!http_1_0_ && !expect.empty() && lower(expect) != "100-continue") {
    return refuse(417, "The only expectation that can be met is 100-continue.");
  }
  admit_and_read_body();
}

// Knows afterwards whether a body follows. Whatever two servers could frame differently is refused,
// and the connection ends (RFC 9112, section 11.2).
bool Connection::check_framing() {
  const auto& message = parser_->get();
  const size_t n_codings = message.count(beast::http::field::transfer_encoding);
  const size_t n_lengths = message.count(beast::http::field::content_length);
  const auto refused = [this](int status, std::string_view sentence) {
    refuse_and_close(status, sentence);
    return false;
  };
  if (n_codings + n_lengths > 1) {
    return refused(400, "A body's end is told by one Content-Length or one Transfer-Encoding.");
  }
  const std::string_view digits = request_.header("content-length");
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return refused(400, "Content-Length is not one number.");
  }
  if (n_codings > 0 && http_1_0_) {
    return refused(400, "A request of HTTP/1.0 has no Transfer-Encoding.");
  }
  if (n_codings > 0 && lower(request_.header("transfer-encoding")) != "chunked") {
    return refused(501, "The only transfer coding understood is chunked.");
  }
  const auto length = parser_->content_length();
  has_body_ = parser_->chunked() || (length.has_value() && *length > 0);
  if (length.has_value() && *length > static_cast<uint64_t>(state_->options.max_body_bytes)) {
    return refused(
        413, fmt::format("The body has {} bytes; at most {} are taken (--max-body-bytes).", *length,
                         state_->options.max_body_bytes));
  }
  return true;
}

bool Connection::check_target() {
  const auto target = parser_->get().target();
  const std::string_view text(target.data(), target.size());
  if (request_.method == "OPTIONS" && text == "*") {
    request_.path = "*";  // the server as a whole
  } else if (!split_target(text, request_.path, request_.query)) {
    refuse_and_close(400, "The request target has no path.");
    return false;
  }
  const size_t n_hosts = parser_->get().count(beast::http::field::host);
  if (n_hosts == 1 || (http_1_0_ && n_hosts == 0)) return true;
  refuse_and_close(400, "A request of HTTP/1.1 has exactly one Host header.");
  return false;
}

// What a path takes, and for a browser's preflight whether its page may ask.
void Connection::answer_options() {
  const std::string methods = request_.path == "*" ? "GET, HEAD, POST, OPTIONS" : match_.allow;
  if (methods.empty()) return refuse_unroutable();
  Response response{204, "", "", {{"Allow", methods}}};
  if (!request_.header("access-control-request-method").empty()) {
    state_->cors.add_preflight_headers(
        origin_, methods, request_.header("access-control-request-headers"), response.headers);
  }
  answer_directly(std::move(response));
}

void Connection::refuse_unroutable() {
  if (match_.allow.empty()) {
    return refuse(404, fmt::format("There is no route {}.", request_.path.substr(0, 200)));
  }
  Response response = state_->options.make_error(
      405, fmt::format("{} is not a method of {}; it has {}.", request_.method.substr(0, 40),
                       request_.path, match_.allow));
  response.headers.push_back({"Allow", match_.allow});
  answer_directly(std::move(response));
}

void Connection::admit_and_read_body() {
  const auto length = parser_->content_length();
  const int64_t expected = parser_->chunked()   ? kChunkedTicketBytes
                           : length.has_value() ? static_cast<int64_t>(*length)
                                                : 0;
  if (!match_.route->admitted) {
    // Such a route reads no body.
    if (has_body_ && !skippable_body().has_value()) keep_alive_ = false;
    if (has_body_ && keep_alive_) skip_left_ = static_cast<size_t>(*length);
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
  if (used >= allowed) return refuse_and_close(408, "The body took too long to arrive.");
  arm(allowed - used);
  reading_ = Reading::kBody;
  beast::http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](Error error, size_t) { self->on_body(error); });
}

void Connection::on_body(Error error) {
  if (closed_) return;
  reading_ = Reading::kNothing;
  disarm();
  if (std::exchange(timed_out_, false)) {
    return refuse_and_close(408, "The body took too long to arrive.");
  }
  if (is_http_error(error) && error != beast::http::error::partial_message) {
    return refuse_and_close(400,
                            fmt::format("The body is not valid HTTP/1.1: {}.", error.message()));
  }
  if (error) return close();
  const auto size = static_cast<int64_t>(parser_->get().body().size());
  if (size > state_->options.max_body_bytes) {
    return refuse_and_close(413, fmt::format("The body has more than {} bytes (--max-body-bytes).",
                                             state_->options.max_body_bytes));
  }
  if (!fits_ticket(size)) {
    return refuse_and_close(429, "The server has as many requests as it can take.");
  }
  if (!parser_->is_done()) return read_body();
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
  // For whoever is told of the answer.
  request_.id = exchange->request().id;
  request_.method = exchange->request().method;
  request_.path = exchange->request().path;
  exchange_ = exchange;
  watch();
  match_.route->handler(std::move(exchange));
}

// A body that was promised and is not wanted is read past when that is cheap and sure. A client
// that waits to be told to go on may or may not send it.
std::optional<size_t> Connection::skippable_body() const {
  // Of a head that was not understood there is no length.
  if (!keep_alive_ || !parser_.has_value() || !parser_->is_header_done()) return std::nullopt;
  if (parser_->chunked() || !request_.header("expect").empty()) return std::nullopt;
  const auto length = parser_->content_length();
  if (!length.has_value() || *length > kMaxSkippedBody) return std::nullopt;
  return static_cast<size_t>(*length);
}

// After the answer, with a deadline set.
void Connection::skip_body() {
  const size_t n = std::min(buffer_.size(), skip_left_);
  buffer_.consume(n);
  skip_left_ -= n;
  if (skip_left_ == 0) {
    disarm();
    return wait_for_request();
  }
  socket_.async_read_some(buffer_.prepare(std::min(skip_left_, kSkipReadBytes)),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            if (error || self->closed_) return self->close();
                            self->buffer_.commit(bytes);
                            self->skip_body();
                          });
}

}  // namespace pagoda::http
