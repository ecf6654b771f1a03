#include "server/api/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pagoda::api {
namespace {

constexpr double kMinLogprob = -9999.0;

}  // namespace

std::string shown_token(const model::Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  model::Utf8Stream utf8;
  std::string text = utf8.push(bytes);
  text += utf8.finish();
  if (text == bytes) return text;
  std::string hex = "bytes:";
  for (const char byte : bytes) hex += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

double finite_logprob(float logprob) {
  return std::isfinite(logprob) ? std::max<double>(logprob, kMinLogprob) : kMinLogprob;
}

int64_t count_code_points(std::string_view utf8) {
  return std::ranges::count_if(
      utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

void LogprobWriter::append(const engine::TokenLogprob& logprob) {
  LogprobLists::Top top;
  const auto add = [&](TokenId id, float value) {
    std::string text = shown_token(tokenizer_, id);
    // Two ids may look alike; the likelier one keeps the name.
    if (std::ranges::find(top, text, [](const auto& entry) { return entry.first; }) != top.end()) {
      return;
    }
    top.emplace_back(std::move(text), finite_logprob(value));
  };
  for (const auto& [id, value] : logprob.top) add(id, value);
  add(logprob.token, logprob.logprob);
  lists_.tokens.push_back(shown_token(tokenizer_, logprob.token));
  lists_.token_logprobs.push_back(finite_logprob(logprob.logprob));
  lists_.top_logprobs.push_back(std::move(top));
  lists_.text_offset.push_back(offset_);
}

void LogprobWriter::add_prompt(std::span<const TokenId> prompt, size_t n_hidden, bool skip_special,
                               std::span<const engine::TokenLogprob> logprobs) {
  model::Detokenizer text(tokenizer_, skip_special);
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (i == 0) {
      lists_.tokens.push_back(shown_token(tokenizer_, prompt[0]));
      lists_.token_logprobs.emplace_back(std::nullopt);
      lists_.top_logprobs.emplace_back(std::nullopt);
      lists_.text_offset.push_back(offset_);
    } else if (i - 1 < logprobs.size()) {
      append(logprobs[i - 1]);
    }
    if (i >= n_hidden) skip_text(text.push(prompt[i]));
  }
  skip_text(text.finish());
}

void LogprobWriter::add(const engine::TokenLogprob& logprob) {
  append(logprob);
  skip_text(output_.push(logprob.token));
}

}  // namespace pagoda::api
