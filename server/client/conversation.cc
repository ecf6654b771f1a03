#include "server/client/conversation.h"

#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "server/client/sse.h"

namespace pagoda::client {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxErrorBytes = 64 << 10;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

// One answer on its way.
struct Conversation::Stream {
  bool take(std::string_view piece, const OnText& on_text) {
    if (status != 200) {
      error_body += piece.substr(0, kMaxErrorBytes - error_body.size());
      return error_body.size() < kMaxErrorBytes;
    }
    const absl::Status read =
        sse.push(piece, [&](std::string_view data) { return take_event(data, on_text); });
    if (!read.ok()) error = read;
    return error.ok();
  }

  bool take_event(std::string_view data, const OnText& on_text) {
    absl::StatusOr<StreamEvent> event = parse_stream_event(data);
    if (!event.ok()) error = event.status();
    if (event.ok() && !event->error.empty()) {
      error = base::status_error(absl::StatusCode::kUnavailable, "{}", event->error);
    }
    if (!error.ok()) return false;
    if (event->usage.has_value()) answer.usage = *event->usage, has_usage = true;
    if (!event->finish_reason.empty()) answer.finish_reason = event->finish_reason;
    if (event->is_end || !event->finish_reason.empty()) ended = true;
    if (event->text.empty()) return true;
    if (text.empty()) answer.first_text_s = seconds(Clock::now() - begin);
    text += event->text;
    if (!has_usage) ++answer.usage.completion_tokens;
    on_text(event->text);
    return true;
  }

  // What became of the request, after its last event.
  absl::Status verdict(const absl::Status& transport) const {
    if (answer.was_stopped) return absl::OkStatus();
    if (!transport.ok()) return transport;
    if (status != 200) {
      return base::status_error(absl::StatusCode::kUnavailable, "the server answered {}: {}",
                                status, error_message(error_body));
    }
    if (!error.ok() || ended) return error;
    return absl::UnavailableError("the answer broke off");
  }

  Clock::time_point begin = Clock::now();
  SseReader sse;
  int status = 0;
  bool has_usage = false;
  bool ended = false;
  std::string text;
  std::string error_body;
  absl::Status error;
  Answer answer;
};

Conversation::Conversation(asio::io_context& io, Interrupts& interrupts, Url url,
                           ChatOptions options)
    : io_(io), interrupts_(interrupts), options_(std::move(options)), http_(io, std::move(url)) {}

absl::Status Conversation::find_model() {
  ASSIGN_OR_RETURN(const std::string first, first_model(io_, http_, options_.api_key));
  if (options_.model.empty()) options_.model = first;
  return absl::OkStatus();
}

std::vector<Message> Conversation::messages() const {
  std::vector<Message> all;
  if (!options_.system.empty()) all.push_back({"system", options_.system});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

std::string Conversation::body() const {
  nlohmann::ordered_json json;
  if (!options_.model.empty()) json["model"] = options_.model;
  json["messages"] = nlohmann::ordered_json::array();
  for (const Message& message : messages()) {
    json["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  json["stream"] = true;
  json["stream_options"] = {{"include_usage", true}};
  if (options_.temperature.has_value()) json["temperature"] = *options_.temperature;
  if (options_.top_p.has_value()) json["top_p"] = *options_.top_p;
  if (options_.max_tokens.has_value()) json["max_tokens"] = *options_.max_tokens;
  // Another try under the same seed would be the same answer.
  if (options_.seed.has_value()) json["seed"] = *options_.seed + n_retries_;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Answer> Conversation::ask(std::string text, const OnText& on_text) {
  n_retries_ = 0;
  messages_.push_back({"user", std::move(text)});
  absl::StatusOr<Answer> answer = run(on_text);
  if (messages_.back().role == "user") messages_.pop_back();
  return answer;
}

absl::StatusOr<Answer> Conversation::retry(const OnText& on_text) {
  if (messages_.empty()) {
    return absl::FailedPreconditionError("there is no answer yet to try again");
  }
  const Message last = std::move(messages_.back());
  messages_.pop_back();
  ++n_retries_;
  absl::StatusOr<Answer> answer = run(on_text);
  if (messages_.back().role == "user") messages_.push_back(last);
  return answer;
}

absl::StatusOr<Answer> Conversation::run(const OnText& on_text) {
  Stream stream;
  absl::Status transport;
  // A copy of the descriptor, as the object closes the one it has.
  asio::posix::stream_descriptor interrupt(io_);
  if (interrupts_.fd() >= 0) {
    (void)interrupts_.take();              // one that came before is not meant for this answer
    boost::system::error_code not_opened;  // then this answer cannot be stopped
    interrupt.assign(::dup(interrupts_.fd()), not_opened);
  }
  HttpRequest request{.method = "POST",
                      .path = "/v1/chat/completions",
                      .body = body(),
                      .api_key = options_.api_key};
  http_.start(std::move(request),
              {.on_head = [&](int status) { stream.status = status; },
               .on_body = [&](std::string_view piece) { return stream.take(piece, on_text); },
               .on_done =
                   [&](absl::Status status) {
                     transport = std::move(status);
                     interrupt.close();
                   }});
  if (interrupt.is_open()) {
    interrupt.async_wait(asio::posix::stream_descriptor::wait_read,
                         [&](boost::system::error_code error) {
                           if (error || !interrupts_.take()) return;
                           stream.answer.was_stopped = true;
                           http_.cancel();
                         });
  }
  io_.restart();
  io_.run();
  RETURN_IF_ERROR(stream.verdict(transport));
  Answer& answer = stream.answer;
  answer.seconds = seconds(Clock::now() - stream.begin);
  // A stopped question without a word of an answer is taken back.
  if (!stream.text.empty() || !answer.was_stopped) {
    messages_.push_back({"assistant", std::move(stream.text)});
  }
  ++totals_.n_answers;
  totals_.prompt_tokens += answer.usage.prompt_tokens;
  totals_.cached_tokens += std::max<int64_t>(answer.usage.cached_tokens, 0);
  totals_.output_tokens += answer.usage.completion_tokens;
  totals_.seconds += answer.seconds;
  return answer;
}

}  // namespace pagoda::client
