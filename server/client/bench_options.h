// What `pagoda bench` was asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pagoda::client {

struct BenchOptions {
  std::string url;
  bool chat = false;                      // /v1/chat/completions in place of /v1/completions
  std::string model;                      // empty: the server's first
  std::string api_key;                    // empty: none is sent
  int32_t concurrency = 0;                // 0: 8, or 1024 with request_rate
  int64_t n_requests = 0;                 // 0: 64, or no bound but the duration
  std::chrono::milliseconds duration{0};  // no request begins later; 0: no bound
  int32_t prompt_tokens = 128;
  int32_t max_tokens = 64;
  double request_rate = 0;  // a second, at random times; 0: the next follows when one ends
  bool ignore_eos = true;
  uint64_t seed = 1;
  std::chrono::milliseconds timeout{600'000};  // without a byte from the server
  std::string json_file;                       // empty: none
};

}  // namespace pagoda::client
