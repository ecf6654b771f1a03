// `pagoda chat`: a conversation in the terminal, or with lines from a pipe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/client/chat_options.h"
#include "server/client/url.h"

namespace pagoda::client {

// A line that the user typed: "/save notes.md" is the command "save" with its argument. "//" begins
// a message with a slash.
struct ChatLine {
  std::string command;   // empty: a message
  std::string argument;  // of a command; else the message
};
ChatLine parse_chat_line(std::string_view line);

// Talks to the server there until the user leaves or the input ends. On a terminal errors are said
// and the conversation goes on; without one the first ends it and is returned. One sentence.
absl::Status run_chat(const ChatOptions& options, const Url& url);

}  // namespace pagoda::client
