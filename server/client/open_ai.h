// The few fields of OpenAI's API that the commands read and write, and only the standard ones.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/client/http_client.h"

namespace pagoda::client {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = -1;  // -1: not told
};

// One event of a stream of either endpoint.
struct StreamEvent {
  std::string text;  // new text of the first choice
  std::string finish_reason;
  std::optional<Usage> usage;
  bool is_end = false;  // [DONE]
  std::string error;    // not empty: the server broke off
};

// kInvalidArgument for what is no such event.
absl::StatusOr<StreamEvent> parse_stream_event(std::string_view data);

// The message of an error body, or its beginning when it is none of OpenAI's form.
std::string error_message(std::string_view body);

// The id of the server's first model; empty when it tells none.
absl::StatusOr<std::string> first_model(boost::asio::io_context& io, HttpClient& client,
                                        const std::string& api_key);

// Tokens of a text by the server's /tokenize (Pagoda, vLLM: `prompt`; llama.cpp: `content`); none
// when it has no such route.
std::optional<int64_t> count_tokens(boost::asio::io_context& io, HttpClient& client,
                                    const std::string& api_key, const std::string& model,
                                    const std::string& text);

// kInvalidArgument for a key that no header can carry.
absl::Status check_api_key(std::string_view key);

}  // namespace pagoda::client
