#include "server/client/http_client.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagoda::client {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using Error = boost::system::error_code;

namespace {

constexpr uint32_t kMaxHeaderBytes = 64 << 10;
constexpr size_t kReadBytes = 64 << 10;

}  // namespace

// resolve ─▶ connect ─▶ write ─▶ read head ─▶ read body … ─▶ done
//                        ▲
//   kept connection ─────┘  (closed meanwhile: back to resolve, once)
struct HttpClient::Impl : std::enable_shared_from_this<HttpClient::Impl> {
  Impl(asio::io_context& io_in, Url url_in, HttpTimes times_in)
      : io(io_in),
        url(std::move(url_in)),
        times(times_in),
        resolver(io),
        stream(io),
        buffer(kReadBytes + kMaxHeaderBytes) {}

  // A handler of the request that runs now: after cancel() or a later start() it does nothing.
  template <typename Member>
  auto bind(Member member) {
    return [ self = shared_from_this(), run = run_id, member ](
        Error error,
        auto&&... rest) requires std::is_invocable_v<Member, Impl*, Error, decltype(rest)...> {
      if (self->is_running && self->run_id == run) {
        (self.get()->*member)(error, std::forward<decltype(rest)>(rest)...);
      }
    };
  }

  void start(HttpRequest typed, Handlers handlers_in) {
    CHECK(!is_running);
    handlers = std::make_shared<Handlers>(std::move(handlers_in));
    is_running = true;
    ++run_id;
    request = {};
    request.version(11);
    request.method_string(typed.method);
    request.target(url.path + typed.path);
    request.set(http::field::host, url.host_header());
    request.set(http::field::user_agent, "pagoda");
    request.set(http::field::accept, "application/json, text/event-stream");
    if (!typed.api_key.empty()) {
      request.set(http::field::authorization, "Bearer " + typed.api_key);
    }
    if (!typed.body.empty()) request.set(http::field::content_type, "application/json");
    request.body() = std::move(typed.body);
    request.prepare_payload();
    parser.reset();
    is_kept = stream.socket().is_open();
    if (is_kept) return write();
    connect();
  }

  void connect() {
    Error ignored;  // what is left of the old connection does not matter
    stream.socket().close(ignored);
    buffer.clear();
    is_kept = false;
    resolver.async_resolve(url.host, std::to_string(url.port), bind(&Impl::on_resolved));
  }
  void on_resolved(Error error, const tcp::resolver::results_type& found) {
    if (error) return fail(error, "the name of the host is not known");
    stream.expires_after(times.connect);
    stream.async_connect(found, bind(&Impl::on_connected));
  }
  void on_connected(Error error, const tcp::endpoint&) {
    if (error) return fail(error, "no server answers there");
    Error ignored;  // the option only makes small requests leave sooner
    stream.socket().set_option(tcp::no_delay(true), ignored);
    write();
  }

  void write() {
    stream.expires_after(times.silence);
    http::async_write(stream, request, bind(&Impl::on_written));
  }
  void on_written(Error error, size_t) {
    if (error && is_kept) return connect();
    // A server that refuses a body may answer before it has read all of that.
    if (error && error != asio::error::connection_reset && error != asio::error::broken_pipe) {
      return fail(error, "the connection broke");
    }
    parser.emplace();
    parser->header_limit(kMaxHeaderBytes);
    parser->body_limit(boost::none);  // pieces are handed on and not kept
    if (request.method_string() == "HEAD") parser->skip(true);
    http::async_read_header(stream, buffer, *parser, bind(&Impl::on_head));
  }

  void on_head(Error error, size_t) {
    if (error && is_kept && !parser->got_some()) return connect();
    if (error) return fail(error, "the connection broke before an answer");
    const std::shared_ptr<Handlers> held = handlers;
    if (held->on_head) held->on_head(static_cast<int>(parser->get().result_int()));
    if (!is_running) return;
    read_on();
  }
  void read_on() {
    if (parser->is_done()) return finish();
    parser->get().body() = {.data = piece.data(), .size = piece.size(), .more = true};
    stream.expires_after(times.silence);
    http::async_read_some(stream, buffer, *parser, bind(&Impl::on_body));
  }
  void on_body(Error error, size_t) {
    if (error == http::error::need_buffer) error = {};  // piece is full
    const size_t size = piece.size() - parser->get().body().size;
    // Held: the handler may end this request.
    const std::shared_ptr<Handlers> held = handlers;
    if (size > 0 && held->on_body && !held->on_body({piece.data(), size}) && is_running) {
      close();
      return done(absl::OkStatus());
    }
    if (!is_running) return;
    if (error) return fail(error, "the answer broke off");
    read_on();
  }
  void finish() {
    if (!parser->keep_alive()) close();
    stream.expires_never();
    done(absl::OkStatus());
  }

  void close() {
    Error ignored;  // nothing is sent or read any more
    stream.socket().close(ignored);
    buffer.clear();
  }
  void fail(Error error, std::string_view what) {
    close();
    const std::string where = url.text();
    if (error == beast::error::timeout) {
      return done(base::status_error(absl::StatusCode::kDeadlineExceeded,
                                     "{}: the server was silent for too long", where));
    }
    const bool is_http =
        error.category() == http::make_error_code(http::error::bad_version).category();
    if (is_http && error != http::error::end_of_stream && error != http::error::partial_message) {
      return done(base::invalid_argument("{}: what answers there is not an HTTP server ({})", where,
                                         error.message()));
    }
    done(base::status_error(absl::StatusCode::kUnavailable, "{}: {} ({})", where, what,
                            error.message()));
  }
  void done(absl::Status status) {
    is_running = false;
    // Moved out first: the handler may start the next request.
    const std::shared_ptr<Handlers> last = std::exchange(handlers, nullptr);
    if (last->on_done) last->on_done(std::move(status));
  }

  void cancel() {
    is_running = false;
    resolver.cancel();
    close();
    asio::post(io, [last = std::exchange(handlers, nullptr)] {
      if (last->on_done) last->on_done(absl::CancelledError("broken off"));
    });
  }
  void abandon() {
    is_running = false;
    handlers.reset();
    resolver.cancel();
    close();
  }

  asio::io_context& io;
  const Url url;
  const HttpTimes times;
  tcp::resolver resolver;
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  http::request<http::string_body> request;
  std::optional<http::response_parser<http::buffer_body>> parser;
  std::vector<char> piece = std::vector<char>(kReadBytes);
  std::shared_ptr<Handlers> handlers;  // shared with a call of one of them
  bool is_running = false;
  bool is_kept = false;  // the request went out on a connection of an earlier one
  uint64_t run_id = 0;
};

HttpClient::HttpClient(asio::io_context& io, Url url, HttpTimes times)
    : impl_(std::make_shared<Impl>(io, std::move(url), times)) {}
HttpClient::~HttpClient() { impl_->abandon(); }
void HttpClient::start(HttpRequest request, Handlers handlers) {
  impl_->start(std::move(request), std::move(handlers));
}
void HttpClient::cancel() {
  if (!impl_->is_running) return;
  impl_->cancel();
  // Operations of the old one may still be on their way out and read what it owns.
  impl_ = std::make_shared<Impl>(impl_->io, impl_->url, impl_->times);
}

absl::StatusOr<HttpAnswer> fetch(asio::io_context& io, HttpClient& client, HttpRequest request,
                                 size_t max_bytes) {
  HttpAnswer answer;
  absl::Status status = absl::UnavailableError("the client was stopped");
  bool too_large = false;
  client.start(std::move(request), {.on_head = [&](int code) { answer.status = code; },
                                    .on_body =
                                        [&](std::string_view piece) {
                                          too_large = answer.body.size() + piece.size() > max_bytes;
                                          if (!too_large) answer.body += piece;
                                          return !too_large;
                                        },
                                    .on_done = [&](absl::Status end) { status = std::move(end); }});
  io.restart();
  io.run();
  RETURN_IF_ERROR(status);
  if (too_large) {
    return base::status_error(absl::StatusCode::kResourceExhausted,
                              "the server's answer has more than {} bytes", max_bytes);
  }
  return answer;
}

}  // namespace pagoda::client
