// What `pagoda chat` was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pagoda::client {

struct ChatOptions {
  std::string target = "demo";  // an address http://…, or a model to run in this process
  std::string model;            // name sent with requests; empty: the server's first
  std::string api_key;          // empty: none is sent
  std::string system;           // empty: no system message
  // Those that are not set are left to the server.
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> seed;
};

}  // namespace pagoda::client
