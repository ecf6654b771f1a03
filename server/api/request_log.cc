#include "server/api/request_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace pagoda::api {
namespace {

using Json = nlohmann::ordered_json;

double millis(int64_t us) { return static_cast<double>(us) / 1000; }

// At most n bytes; a character that would be cut is left out.
std::string_view cut(std::string_view text, size_t n) {
  if (text.size() <= n) return text;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return text.substr(0, n);
}

std::string text_of(const AnswerLog& answer) {
  return fmt::format(
      "{} {} {} prompt={} cached={} output={} ttft_ms={} total_ms={:.1f}{}{}", answer.id,
      answer.route, answer.status, answer.prompt_tokens, answer.cached_tokens, answer.output_tokens,
      answer.ttft_us < 0 ? std::string("-") : fmt::format("{:.1f}", millis(answer.ttft_us)),
      millis(answer.total_us),
      answer.finish_reason.empty() ? "" : " finish=", answer.finish_reason);
}

Json fields_of(const AnswerLog& answer) {
  Json fields = {{"id", answer.id}, {"route", answer.route}, {"status", answer.status}};
  if (answer.n > 0) fields["n"] = answer.n;
  fields["prompt_tokens"] = answer.prompt_tokens;
  fields["cached_tokens"] = answer.cached_tokens;
  fields["completion_tokens"] = answer.output_tokens;
  fields["ttft_ms"] = answer.ttft_us < 0 ? Json() : Json(millis(answer.ttft_us));
  fields["total_ms"] = millis(answer.total_us);
  fields["finish_reason"] = answer.finish_reason.empty() ? Json() : Json(answer.finish_reason);
  return fields;
}

}  // namespace

void RequestLog::answer(const AnswerLog& answer) {
  const int64_t now_us = clock_.now_us();
  say_hidden(now_us - kWindowUs);
  if (answer.status >= 400 && !is_shown(answer.status, now_us)) return;
  write_(spdlog::level::info, text_of(answer), "request", fields_of(answer));
}

bool RequestLog::is_shown(int status, int64_t now_us) {
  std::lock_guard lock(mutex_);
  Window& window = windows_[status];
  if (now_us - window.begin_us >= kWindowUs) window = {now_us, 0, 0};
  const bool shown = window.n_shown < kMostErrors;
  ++(shown ? window.n_shown : window.n_hidden);
  return shown;
}

void RequestLog::flush() { say_hidden(std::numeric_limits<int64_t>::max()); }

// Of the windows that began at or before that moment.
void RequestLog::say_hidden(int64_t began_before_us) {
  std::vector<std::pair<int, int64_t>> hidden;
  {
    std::lock_guard lock(mutex_);
    for (auto& [status, window] : windows_) {
      if (window.n_hidden == 0 || window.begin_us > began_before_us) continue;
      hidden.emplace_back(status, std::exchange(window.n_hidden, 0));
    }
  }
  for (const auto& [status, n] : hidden) {
    write_(spdlog::level::info,
           fmt::format("{} more requests ended with status {} and are not shown one by one", n,
                       status),
           "requests not shown", {{"status", status}, {"count", n}});
  }
}

void RequestLog::prompt(std::string_view id, std::string_view text,
                        std::span<const model::TokenId> ids) {
  if (!log_prompts_) return;
  const std::string_view shown = cut(text, kPromptBytes);
  const auto first = ids.first(std::min(ids.size(), kPromptIds));
  write_(spdlog::level::info,
         fmt::format("{} prompt of {} bytes and {} tokens: \"{}\" [{}]", id, text.size(),
                     ids.size(), shown, fmt::join(first, " ")),
         "prompt",
         {{"id", id},
          {"prompt", shown},
          {"prompt_bytes", text.size()},
          {"prompt_ids", std::vector<model::TokenId>(first.begin(), first.end())},
          {"prompt_tokens", ids.size()}});
}

}  // namespace pagoda::api
