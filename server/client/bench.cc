#include "server/client/bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/client/bench_result.h"
#include "server/client/http_client.h"
#include "server/client/open_ai.h"
#include "server/client/prompts.h"
#include "server/client/sse.h"

namespace pagoda::client {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr int32_t kDefaultConcurrency = 8;
constexpr int32_t kDefaultConcurrencyWithRate = 1024;
constexpr int64_t kDefaultRequests = 64;
constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr std::chrono::milliseconds kRedraw{200};
constexpr std::chrono::seconds kLogLine{5};
// After a failure, so that a server that refuses at once is not overrun.
constexpr std::chrono::milliseconds kPauseAfterFailure{100};

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// One request at a time and what came of it.
struct Stream {
  Stream(asio::io_context& io, const Url& url, HttpTimes times) : http(io, url, times), pause(io) {}

  HttpClient http;
  asio::steady_timer pause;
  SseReader sse;
  Time begin;
  Time first_text;
  Time last_text;
  int64_t n_texts = 0;
  int status = 0;
  bool ended = false;      // [DONE] or a finish reason came
  std::string error_body;  // of a status that is not 200
  std::string error;       // within the stream
  std::optional<Usage> usage;
};

class Bench {
 public:
  Bench(asio::io_context& io, BenchOptions options, Url url, std::string model, Prompts prompts)
      : io_(io),
        options_(std::move(options)),
        url_(std::move(url)),
        prompts_(std::move(prompts)),
        random_(options_.seed),
        arrival_(io),
        progress_(io),
        signals_(io, SIGINT, SIGTERM),
        is_terminal_(::isatty(STDERR_FILENO) == 1) {
    result_.server = url_.text();
    result_.model = std::move(model);
    result_.route = options_.chat ? "/v1/chat/completions" : "/v1/completions";
    result_.exact_prompts = prompts_.is_exact();
  }

  const BenchResult& run() {
    begin_ = last_end_ = Clock::now();
    wait_for_signal();
    show_progress_later();
    if (options_.request_rate > 0) {
      next_arrival();
    } else {
      for (int32_t i = 0; i < options_.concurrency && may_begin(); ++i) begin(idle_stream());
    }
    io_.restart();
    io_.run();
    clear_progress();
    result_.seconds = seconds(last_end_ - begin_);
    return result_;
  }
  bool was_stopped() const { return stopped_; }

 private:
  bool may_begin() const {
    if (stopped_) return false;
    if (options_.n_requests > 0 && n_begun_ + std::ssize(due_) >= options_.n_requests) return false;
    return options_.duration.count() == 0 || Clock::now() - begin_ < options_.duration;
  }

  // Null when all are busy.
  Stream* idle_stream() {
    if (idle_.empty() && std::ssize(streams_) < options_.concurrency) {
      streams_.push_back(
          std::make_unique<Stream>(io_, url_, HttpTimes{.silence = options_.timeout}));
      return streams_.back().get();
    }
    if (idle_.empty()) return nullptr;
    Stream* stream = idle_.back();
    idle_.pop_back();
    return stream;
  }

  // Requests come on their own, at times of a Poisson process.
  void next_arrival() {
    if (!may_begin()) return end_if_done();
    std::exponential_distribution<double> wait(options_.request_rate);
    due_at_ += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::min(wait(random_), 3600.0)));
    // No wait goes past the end.
    if (options_.duration.count() > 0)
      due_at_ = std::min<Clock::duration>(due_at_, options_.duration);
    arrival_.expires_at(begin_ + due_at_);
    arrival_.async_wait([this](boost::system::error_code error) {
      if (error || !may_begin()) return end_if_done();
      due_.push_back(begin_ + due_at_);
      if (Stream* stream = idle_stream(); stream != nullptr) begin(stream);
      next_arrival();
    });
  }

  std::string body() {
    nlohmann::ordered_json json;
    if (!result_.model.empty()) json["model"] = result_.model;
    if (options_.chat) {
      json["messages"] = {{{"role", "user"}, {"content", prompts_.next()}}};
    } else {
      json["prompt"] = prompts_.next();
    }
    json["max_tokens"] = options_.max_tokens;
    json["temperature"] = 0;
    json["stream"] = true;
    json["stream_options"] = {{"include_usage", true}};
    if (options_.ignore_eos) json["ignore_eos"] = true;
    return json.dump();
  }

  void begin(Stream* stream) {
    stream->sse = SseReader();
    stream->n_texts = 0;
    stream->status = 0;
    stream->ended = false;
    stream->error_body.clear();
    stream->error.clear();
    stream->usage.reset();
    HttpRequest request{
        .method = "POST", .path = result_.route, .body = body(), .api_key = options_.api_key};
    ++n_begun_;
    ++n_running_;
    stream->begin = Clock::now();
    if (!due_.empty()) {
      stream->begin = due_.front();
      due_.pop_front();
    }
    stream->http.start(
        std::move(request),
        {.on_head = [stream](int status) { stream->status = status; },
         .on_body = [this, stream](std::string_view piece) { return take(*stream, piece); },
         .on_done = [this, stream](absl::Status status) { end(stream, std::move(status)); }});
  }

  bool take(Stream& stream, std::string_view piece) {
    if (stream.status != 200) {
      stream.error_body += piece.substr(0, kMaxErrorBytes - stream.error_body.size());
      return stream.error_body.size() < kMaxErrorBytes;
    }
    const Time now = Clock::now();
    const absl::Status status = stream.sse.push(
        piece, [&](std::string_view data) { return take_event(stream, data, now); });
    if (!status.ok()) stream.error = base::message_of(status);
    return stream.error.empty();
  }

  bool take_event(Stream& stream, std::string_view data, Time now) {
    const absl::StatusOr<StreamEvent> event = parse_stream_event(data);
    if (!event.ok() || !event->error.empty()) {
      stream.error = event.ok() ? event->error : base::message_of(event.status());
      return false;
    }
    if (event->usage.has_value()) stream.usage = event->usage;
    if (event->is_end || !event->finish_reason.empty()) stream.ended = true;
    if (event->text.empty()) return true;
    if (stream.n_texts == 0) {
      stream.first_text = now;
    } else {
      result_.gap.add(seconds(now - stream.last_text));
    }
    stream.last_text = now;
    ++stream.n_texts;
    ++n_events_;
    return true;
  }

  void end(Stream* stream, absl::Status status) {
    const Time now = Clock::now();
    --n_running_;
    const bool ok = record(*stream, status, now);
    if (ok) last_end_ = now;
    if (ok || stopped_) return reuse(stream);
    stream->pause.expires_after(kPauseAfterFailure);
    stream->pause.async_wait([this, stream](boost::system::error_code) { reuse(stream); });
  }

  void reuse(Stream* stream) {
    const bool goes_on = options_.request_rate > 0 ? !due_.empty() && !stopped_ : may_begin();
    if (goes_on) return begin(stream);
    idle_.push_back(stream);
    end_if_done();
  }

  // False: the request failed.
  bool record(const Stream& stream, const absl::Status& status, Time now) {
    if (status.code() == absl::StatusCode::kCancelled) {
      ++result_.n_broken_off;
      return true;
    }
    if (!status.ok()) {
      const bool timed_out = status.code() == absl::StatusCode::kDeadlineExceeded;
      return fail(timed_out ? "timeout" : "connection", base::message_of(status));
    }
    if (stream.status != 200) {
      return fail(fmt::format("status {}", stream.status), error_message(stream.error_body));
    }
    if (!stream.error.empty()) return fail("error in a stream", stream.error);
    if (!stream.ended) return fail("stream without an end", "the answer ended before [DONE]");
    ++result_.n_ok;
    const Usage usage = stream.usage.value_or(Usage{.completion_tokens = stream.n_texts});
    result_.prompt_tokens += usage.prompt_tokens;
    result_.cached_tokens += std::max<int64_t>(usage.cached_tokens, 0);
    result_.output_tokens += usage.completion_tokens;
    result_.whole.add(seconds(now - stream.begin));
    if (stream.n_texts == 0) return true;
    result_.first_token.add(seconds(stream.first_text - stream.begin));
    if (usage.completion_tokens > 1) {
      result_.per_token.add(seconds(stream.last_text - stream.first_text) /
                            static_cast<double>(usage.completion_tokens - 1));
    }
    return true;
  }
  bool fail(const std::string& kind, std::string message) {
    ++result_.n_failed;
    BenchErrors& errors = result_.errors[kind];
    if (errors.n++ == 0) errors.first = std::move(message);
    return false;
  }

  void end_if_done() {
    if (n_running_ > 0 || may_begin() || (!due_.empty() && !stopped_)) return;
    // Streams that pause after a failure have nothing more to begin.
    for (const auto& stream : streams_) stream->pause.cancel();
    arrival_.cancel();
    progress_.cancel();
    signals_.cancel();
  }

  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int number) {
      if (error) return;
      if (stopped_) std::_Exit(128 + number);
      stopped_ = true;
      due_.clear();
      arrival_.cancel();
      wait_for_signal();
      for (const auto& stream : streams_) stream->http.cancel();
      end_if_done();
    });
  }

  // What of the load is done, 0 to 1.
  double share_done() const {
    double share = 0;
    if (options_.n_requests > 0) {
      share = static_cast<double>(result_.n_ok + result_.n_failed) /
              static_cast<double>(options_.n_requests);
    }
    if (options_.duration.count() > 0) {
      share = std::max(share, seconds(Clock::now() - begin_) / seconds(options_.duration));
    }
    return std::min(share, 1.0);
  }

  void show_progress_later() {
    progress_.expires_after(is_terminal_ ? Clock::duration(kRedraw) : Clock::duration(kLogLine));
    progress_.async_wait([this](boost::system::error_code error) {
      if (error) return;
      show_progress();
      show_progress_later();
    });
  }
  void show_progress() {
    const std::string text = fmt::format(
        "{} done, {} running, {} failed, {:.0f} events a second", result_.n_ok, n_running_,
        result_.n_failed, static_cast<double>(n_events_) / seconds(Clock::now() - begin_));
    if (is_terminal_) {
      constexpr size_t kBar = 24;
      const auto filled = static_cast<size_t>(share_done() * static_cast<double>(kBar));
      fmt::print(stderr, "\r[{}{}] {}\x1b[K", std::string(filled, '='),
                 std::string(kBar - filled, ' '), text);
    } else {
      fmt::print(stderr, "{:.0f} %: {}\n", 100 * share_done(), text);
    }
    std::fflush(stderr);
  }
  void clear_progress() const {
    if (is_terminal_) fmt::print(stderr, "\r\x1b[K");
  }

  asio::io_context& io_;
  const BenchOptions options_;
  const Url url_;
  Prompts prompts_;
  std::mt19937_64 random_;
  asio::steady_timer arrival_;
  asio::steady_timer progress_;
  asio::signal_set signals_;
  const bool is_terminal_;

  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> idle_;
  std::deque<Time> due_;  // with a rate: times of requests that wait for a stream
  Clock::duration due_at_{0};
  Time begin_;
  Time last_end_;
  int64_t n_begun_ = 0;
  int64_t n_running_ = 0;
  int64_t n_events_ = 0;
  bool stopped_ = false;
  BenchResult result_;
};

// A file to write to, or none.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

absl::StatusOr<File> open_json(const std::string& path) {
  File file(nullptr, std::fclose);
  if (path.empty()) return file;
  file.reset(std::fopen(path.c_str(), "w"));
  if (file == nullptr) return base::invalid_argument("--json: {} cannot be written", path);
  return file;
}

void fill_defaults(BenchOptions& options) {
  if (options.concurrency == 0) {
    options.concurrency =
        options.request_rate > 0 ? kDefaultConcurrencyWithRate : kDefaultConcurrency;
  }
  if (options.n_requests == 0 && options.duration.count() == 0) {
    options.n_requests = kDefaultRequests;
  }
}

}  // namespace

absl::Status run_bench(BenchOptions options) {
  fill_defaults(options);
  ASSIGN_OR_RETURN(const Url url, parse_url(options.url));
  RETURN_IF_ERROR(check_api_key(options.api_key));
  asio::io_context io;
  HttpClient http(io, url, {.silence = options.timeout});
  ASSIGN_OR_RETURN(const std::string first, first_model(io, http, options.api_key));
  const std::string model = options.model.empty() ? first : options.model;
  ASSIGN_OR_RETURN(const File file, open_json(options.json_file));
  Prompts prompts(options.prompt_tokens, options.seed, [&](const std::string& text) {
    return count_tokens(io, http, options.api_key, model, text);
  });
  Bench bench(io, options, url, model, std::move(prompts));
  const BenchResult& result = bench.run();
  fmt::print("{}", bench_text(options, result));
  if (file != nullptr) {
    const std::string text = bench_json(options, result);
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
      return base::status_error(absl::StatusCode::kUnavailable, "--json: {} cannot be written",
                                options.json_file);
    }
  }
  if (bench.was_stopped()) return absl::CancelledError("");
  if (result.n_ok > 0) return absl::OkStatus();
  return base::status_error(absl::StatusCode::kUnavailable, "no request succeeded");
}

}  // namespace pagoda::client
