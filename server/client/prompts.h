// Prompts of a wanted length, no two alike.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::client {

// Tokens of a text; none when nobody can say.
using CountTokens = std::function<std::optional<int64_t>(const std::string& text)>;

// Strings common words together. With a counter it first looks for the words that are one token
// each after a blank, and so knows the length of any text of them. One thread; the same seed gives
// the same prompts.
class Prompts {
 public:
  Prompts(int32_t n_tokens, uint64_t seed, const CountTokens& count);

  std::string next();
  // The counter found a prompt to have exactly the wanted tokens. Else a prompt has as many words.
  bool is_exact() const { return is_exact_; }

 private:
  std::vector<std::string_view> words_;
  int64_t n_words_ = 0;
  bool is_exact_ = false;
  std::mt19937_64 random_;
};

}  // namespace pagoda::client
