// What a run of `pagoda bench` measured, and how it is shown.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/client/bench_options.h"
#include "server/client/samples.h"

namespace pagoda::client {

struct BenchErrors {
  int64_t n = 0;
  std::string first;  // what the first of them said
};

// Times in seconds.
struct BenchResult {
  std::string server;
  std::string model;
  std::string route;
  bool exact_prompts = false;

  double seconds = 0;  // from the first request to the last answer's end
  int64_t n_ok = 0;
  int64_t n_failed = 0;
  int64_t n_broken_off = 0;                   // by Ctrl-C
  std::map<std::string, BenchErrors> errors;  // by kind
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;

  Samples first_token;  // from the request (with a rate: from when it was due) to the first text
  Samples per_token;    // of an answer: first text to last text, by its tokens but the first
  Samples gap;          // between two events with text
  Samples whole;        // from the request to the end of the answer
};

std::string bench_text(const BenchOptions& options, const BenchResult& result);
std::string bench_json(const BenchOptions& options, const BenchResult& result);

}  // namespace pagoda::client
