#include "server/logging.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

// The payload of this logger's messages is made by log_event: JSON fields, or text.
constexpr std::string_view kEventLogger = "event";
// What a pipe takes without waiting once poll() has said that it takes something.
constexpr size_t kPieceBytes = 4096;

std::atomic<int64_t> n_dropped{0};
std::atomic<bool> json_lines{false};
// The loggers are the one kind of global here, as spdlog's default logger is.
std::shared_ptr<spdlog::logger> event_logger;

class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int descriptor) : descriptor_(descriptor) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (n_lost_ > 0) {
      const std::string text = fmt::format("{} log lines could not be written", n_lost_);
      if (say({"pagoda", spdlog::level::warn, text})) n_lost_ = 0;
    }
    if (n_lost_ > 0 || !say(message)) {
      ++n_lost_;
      n_dropped.fetch_add(1);
    }
  }
  void flush_() override {}

 private:
  bool say(const spdlog::details::log_msg& message) {
    line_.clear();
    // What is left of a torn line ends, so that this one can be read.
    if (torn_) line_.push_back('\n');
    formatter_->format(message, line_);
    return write(std::string_view(line_.data(), line_.size()));
  }

  // False when not all of it went out.
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd ready{descriptor_, POLLOUT, 0};
      if (::poll(&ready, 1, 0) <= 0 || (ready.revents & POLLOUT) == 0) return false;
      const ssize_t n = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kPieceBytes));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
      torn_ = !bytes.empty();
    }
    return true;
  }

  const int descriptor_;
  int64_t n_lost_ = 0;  // lines since the last that was written
  bool torn_ = false;
  spdlog::memory_buf_t line_;
};

void append(spdlog::memory_buf_t& to, std::string_view text) {
  to.append(text.data(), text.data() + text.size());
}

std::string_view view(spdlog::string_view_t text) { return {text.data(), text.size()}; }

struct Moment {
  std::tm time{};
  int millis = 0;
};

Moment moment_of(spdlog::log_clock::time_point time, bool utc) {
  const std::time_t seconds = spdlog::log_clock::to_time_t(time);
  Moment moment;
  utc ? gmtime_r(&seconds, &moment.time) : localtime_r(&seconds, &moment.time);
  moment.millis = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() %
      1000);
  return moment;
}

class TextFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const Moment moment = moment_of(message.time, false);
    append(line, fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} {} ", moment.time, moment.millis,
                             view(spdlog::level::to_string_view(message.level))));
    for (const char c : view(message.payload)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte >= 0x20 && byte != 0x7f) {
        line.push_back(c);
      } else {  // a control character would forge lines or speak to a terminal
        append(line, fmt::format("\\x{:02x}", byte));
      }
    }
    line.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<TextFormatter>();
  }
};

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    const Moment moment = moment_of(message.time, true);
    append(line, fmt::format(R"({{"ts":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","level":"{}",)", moment.time,
                             moment.millis, view(spdlog::level::to_string_view(message.level))));
    if (view(message.logger_name) == kEventLogger) {
      append(line, view(message.payload));
    } else {
      append(line, "\"msg\":");
      append(line, dump(std::string(view(message.payload))));
    }
    append(line, "}\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

std::unique_ptr<spdlog::formatter> make_log_formatter(LogFormat format) {
  if (format == LogFormat::kJson) return std::make_unique<JsonFormatter>();
  return std::make_unique<TextFormatter>();
}

std::shared_ptr<spdlog::sinks::sink> make_descriptor_sink(int descriptor) {
  return std::make_shared<DescriptorSink>(descriptor);
}

void set_up_logging(const std::string& level, LogFormat format) {
  // Writing to a pipe that nobody reads any more is an error like others, not the end.
  std::signal(SIGPIPE, SIG_IGN);
  // Were stderr closed, the next file or socket would get its number, and log lines with it.
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    break;
  }
  json_lines.store(format == LogFormat::kJson);
  const auto sink = make_descriptor_sink(STDERR_FILENO);
  sink->set_formatter(make_log_formatter(format));
  event_logger = std::make_shared<spdlog::logger>(std::string(kEventLogger), sink);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("pagoda", sink));
  event_logger->set_level(spdlog::level::from_str(level));
  spdlog::set_level(spdlog::level::from_str(level));
}

void log_event(spdlog::level::level_enum level, const std::string& text, const std::string& msg,
               const Json& fields) {
  if (event_logger == nullptr || !event_logger->should_log(level)) return;
  if (!json_lines.load()) {
    event_logger->log(level, spdlog::string_view_t(text));
    return;
  }
  std::string line = "\"msg\":" + dump(msg);
  if (!fields.empty()) {
    const std::string object = dump(fields);
    line += "," + object.substr(1, object.size() - 2);  // without its braces
  }
  event_logger->log(level, spdlog::string_view_t(line));
}

int64_t n_dropped_log_lines() { return n_dropped.load(); }

}  // namespace pagoda
