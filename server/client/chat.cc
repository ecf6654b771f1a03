#include "server/client/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "server/client/conversation.h"
#include "server/client/interrupts.h"
#include "server/client/line_editor.h"
#include "server/client/units.h"

namespace pagoda::client {
namespace {

constexpr char kHelp[] =
    "  /system TEXT   what the model is told first; without TEXT it is shown\n"
    "  /reset         begin anew\n"
    "  /retry         another answer to the last message\n"
    "  /stats         tokens and speed so far\n"
    "  /save FILE     write the conversation, as JSON if FILE ends in .json\n"
    "  /quit          leave (Ctrl-D does as well)\n"
    "A \\ at the end of a line continues the message in the next one. Ctrl-C stops an answer.\n";

double a_second(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

std::string status_text(const Answer& answer) {
  const Usage& usage = answer.usage;
  std::string text =
      fmt::format("{} tokens, {:.1f} a second, the first after {:.2f} s", usage.completion_tokens,
                  a_second(usage.completion_tokens, answer.seconds), answer.first_text_s);
  if (usage.cached_tokens >= 0) {
    text += fmt::format("; {} of {} prompt tokens from the cache", usage.cached_tokens,
                        usage.prompt_tokens);
  }
  if (answer.was_stopped) return text + "; stopped";
  if (answer.finish_reason == "length") return text + "; cut at the limit of tokens";
  return text;
}

std::string transcript(const std::vector<Message>& messages, bool as_json) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::string text;
  for (const Message& message : messages) {
    json.push_back({{"role", message.role}, {"content", message.content}});
    text += fmt::format("# {}\n\n{}\n\n", message.role, message.content);
  }
  if (!as_json) return text;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::Status save(const std::string& path, const std::string& text) {
  if (path.empty()) return base::invalid_argument("/save takes the name of a file");
  // "x": a file that exists is not overwritten.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wx"),
                                                             std::fclose);
  if (file == nullptr) {
    return base::invalid_argument("{} cannot be written: {}", path, std::strerror(errno));
  }
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
    return base::invalid_argument("{} cannot be written to its end", path);
  }
  return absl::OkStatus();
}

class Chat {
 public:
  Chat(const ChatOptions& options, const Url& url)
      : is_terminal_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1),
        is_shown_(::isatty(STDOUT_FILENO) == 1),
        where_(options.target),
        interrupts_(is_terminal_),  // in a script Ctrl-C ends the program
        conversation_(io_, interrupts_, url, options) {}

  absl::Status run() {
    RETURN_IF_ERROR(conversation_.find_model());
    LineEditor editor(interrupts_, is_terminal_);
    if (is_terminal_) {
      say(fmt::format("Chat with {} ({}). /help lists the commands, Ctrl-D leaves.\n",
                      conversation_.model().empty() ? "the model" : conversation_.model(), where_));
    }
    while (!quit_) {
      std::optional<std::string> line;
      RETURN_IF_ERROR(read_message(editor, line));
      if (!line.has_value()) break;
      editor.remember(*line);
      const absl::Status status = handle(*line);
      if (status.ok()) continue;
      if (!is_terminal_) return status;
      say(fmt::format("pagoda: {}\n", base::message_of(status)));
    }
    return absl::OkStatus();
  }

 private:
  // A line, with those that a backslash continues it with. None at the end.
  absl::Status read_message(LineEditor& editor, std::optional<std::string>& message) {
    std::string whole;
    std::string line;
    while (true) {
      switch (editor.read(whole.empty() ? "> " : ". ", line)) {
        case LineEnd::kEnd:
          if (!whole.empty()) message = whole;
          return absl::OkStatus();
        case LineEnd::kInterrupted:
          whole.clear();
          say("Ctrl-D or /quit leaves.\n");
          continue;
        case LineEnd::kTooLong:
          return base::invalid_argument("a line of the input has more than {} bytes",
                                        kMaxLineBytes);
        case LineEnd::kLine:
          break;
      }
      const bool goes_on = line.ends_with('\\');
      if (goes_on) line.back() = '\n';
      whole += line;
      if (whole.size() > kMaxLineBytes) {
        return base::invalid_argument("a message has more than {} bytes", kMaxLineBytes);
      }
      if (goes_on) continue;
      message = whole;
      return absl::OkStatus();
    }
  }

  absl::Status handle(const std::string& typed) {
    const ChatLine line = parse_chat_line(typed);
    if (line.command.empty()) {
      if (line.argument.find_first_not_of(" \t\n") == std::string::npos) return absl::OkStatus();
      return finish(conversation_.ask(line.argument, printer()));
    }
    if (line.command == "quit" || line.command == "exit") {
      quit_ = true;
    } else if (line.command == "help") {
      say(kHelp);
    } else if (line.command == "system") {
      set_system(line.argument);
    } else if (line.command == "reset") {
      conversation_.reset();
      if (is_terminal_) say("The conversation begins anew.\n");
    } else if (line.command == "retry") {
      return finish(conversation_.retry(printer()));
    } else if (line.command == "stats") {
      show_stats();
    } else if (line.command == "save") {
      const bool as_json = line.argument.ends_with(".json");
      RETURN_IF_ERROR(save(line.argument, transcript(conversation_.messages(), as_json)));
      if (is_terminal_) say(fmt::format("The conversation is in {}.\n", line.argument));
    } else {
      return base::invalid_argument(
          "there is no command /{}; /help lists them, and // begins a "
          "message with a slash",
          line.command);
    }
    return absl::OkStatus();
  }

  void set_system(const std::string& text) {
    if (!text.empty()) {
      conversation_.set_system(text);
    } else {
      const std::string& now = conversation_.system();
      say(now.empty() ? "There is no system message.\n" : now + "\n");
    }
  }

  void show_stats() {
    const ChatTotals& all = conversation_.totals();
    say(fmt::format("{} {}, {} tokens, {:.1f} a second; {} of {} prompt tokens from the cache\n",
                    all.n_answers, all.n_answers == 1 ? "answer" : "answers", all.output_tokens,
                    a_second(all.output_tokens, all.seconds), all.cached_tokens,
                    all.prompt_tokens));
  }

  Conversation::OnText printer() {
    return [this](std::string_view text) {
      // What a model writes must not steer the terminal.
      const std::string shown = is_shown_ ? printable(text) : std::string(text);
      std::fwrite(shown.data(), 1, shown.size(), stdout);
      std::fflush(stdout);
    };
  }

  // After an answer's last word.
  absl::Status finish(const absl::StatusOr<Answer>& answer) {
    if (answer.ok() || is_terminal_) std::fputs("\n", stdout);
    RETURN_IF_ERROR(answer.status());
    if (is_terminal_) {
      const bool dim = std::getenv("NO_COLOR") == nullptr;
      fmt::print("{}{}{}\n", dim ? "\x1b[2m" : "", status_text(*answer), dim ? "\x1b[0m" : "");
    }
    std::fflush(stdout);
    return absl::OkStatus();
  }

  // Text that is no part of an answer; without a terminal stdout has answers alone.
  void say(const std::string& text) const {
    std::FILE* const to = is_terminal_ ? stdout : stderr;
    const std::string shown = printable(text);
    std::fwrite(shown.data(), 1, shown.size(), to);
    std::fflush(to);
  }

  const bool is_terminal_;
  const bool is_shown_;  // answers go to a terminal
  const std::string where_;
  boost::asio::io_context io_;
  Interrupts interrupts_;
  Conversation conversation_;
  bool quit_ = false;
};

}  // namespace

ChatLine parse_chat_line(std::string_view line) {
  if (line.starts_with("//")) return {"", std::string(line.substr(1))};
  if (!line.starts_with('/') || line.size() == 1) return {"", std::string(line)};
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const size_t begin = std::min(line.find_first_not_of(" \t\n", end), line.size());
  std::string_view argument = line.substr(begin);
  const size_t last = argument.find_last_not_of(" \t\n");
  argument = argument.substr(0, last == argument.npos ? 0 : last + 1);
  return {std::string(line.substr(1, end - 1)), std::string(argument)};
}

absl::Status run_chat(const ChatOptions& options, const Url& url) {
  RETURN_IF_ERROR(check_api_key(options.api_key));
  return Chat(options, url).run();
}

}  // namespace pagoda::client
