// One log line for each request.
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::api {

// How a request ended; no content of it.
struct AnswerLog {
  std::string_view id;
  std::string_view route;
  int status = 200;
  int64_t n = 0;  // answers that were asked for; 0: it did not come to that
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t output_tokens = 0;
  std::string_view finish_reason = {};  // of the first answer; empty: there is none
  int64_t ttft_us = -1;                 // -1: there was no first token
  int64_t total_us = 0;
};

// Any thread.
class RequestLog {
 public:
  // Takes the text form of a line, and the message and fields of its JSON form.
  using Write = std::function<void(spdlog::level::level_enum level, const std::string& text,
                                   const std::string& msg, const nlohmann::ordered_json& fields)>;
  // Borrows the clock.
  RequestLog(const base::Clock& clock, Write write, bool log_prompts)
      : clock_(clock), write_(std::move(write)), log_prompts_(log_prompts) {}

  // At info. Of errors with the same status, at most kMostErrors in kWindow: the rest is counted,
  // and the count is said with the first line after it, so that a flood of refusals does not fill
  // the disk.
  void answer(const AnswerLog& answer);
  // At info, only with --log-prompts; cut to kPromptBytes and kPromptIds.
  void prompt(std::string_view id, std::string_view text, std::span<const model::TokenId> ids);
  // Says what has been counted so far.
  void flush();

  static constexpr int64_t kWindowUs = 10'000'000;
  static constexpr int64_t kMostErrors = 20;
  static constexpr size_t kPromptBytes = 2048;
  static constexpr size_t kPromptIds = 256;

 private:
  struct Window {
    int64_t begin_us = 0;
    int64_t n_shown = 0;
    int64_t n_hidden = 0;
  };
  bool is_shown(int status, int64_t now_us);
  void say_hidden(int64_t began_before_us);

  const base::Clock& clock_;
  const Write write_;
  const bool log_prompts_;
  std::mutex mutex_;
  std::map<int, Window> windows_;  // by status; guarded by mutex_
};

}  // namespace pagoda::api
