// A conversation with a model behind /v1/chat/completions.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/client/chat_options.h"
#include "server/client/http_client.h"
#include "server/client/interrupts.h"
#include "server/client/open_ai.h"

namespace pagoda::client {

struct Message {
  std::string role;  // system, user, assistant
  std::string content;
};

// An answer, once it has ended.
struct Answer {
  Usage usage;  // completion_tokens: events with text where the server tells no usage
  std::string finish_reason;
  bool was_stopped = false;  // by the user
  double first_text_s = 0;
  double seconds = 0;
};

// What all answers came to.
struct ChatTotals {
  int64_t n_answers = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  double seconds = 0;
};

// One thread, which also runs the io_context while an answer comes. Borrows both.
class Conversation {
 public:
  using OnText = std::function<void(std::string_view text)>;

  Conversation(boost::asio::io_context& io, Interrupts& interrupts, Url url, ChatOptions options);

  // Asks the server for its first model, if none was named. An error when no server is there.
  absl::Status find_model();
  const std::string& model() const { return options_.model; }

  // Sends the conversation with `text` after it; on_text gets the answer piece by piece. An
  // interrupt ends the answer, and what came of it stays. After an error the conversation is what
  // it was before.
  absl::StatusOr<Answer> ask(std::string text, const OnText& on_text);
  // Drops the last answer and asks for another one. kFailedPrecondition when there is none.
  absl::StatusOr<Answer> retry(const OnText& on_text);

  // Forgets all but the system message.
  void reset() { messages_.clear(); }
  void set_system(std::string text) { options_.system = std::move(text); }
  const std::string& system() const { return options_.system; }
  std::vector<Message> messages() const;  // the system message included
  const ChatTotals& totals() const { return totals_; }

 private:
  struct Stream;
  std::string body() const;
  absl::StatusOr<Answer> run(const OnText& on_text);

  boost::asio::io_context& io_;
  Interrupts& interrupts_;
  ChatOptions options_;
  HttpClient http_;
  std::vector<Message> messages_;  // without the system message
  int64_t n_retries_ = 0;          // of the last question
  ChatTotals totals_;
};

}  // namespace pagoda::client
