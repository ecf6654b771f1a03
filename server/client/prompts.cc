#include "server/client/prompts.h"

#include <algorithm>
#include <array>

namespace pagoda::client {
namespace {

constexpr std::array<std::string_view, 80> kWords = {
    "time",   "year",     "people", "way",    "day",     "man",    "thing",   "woman",    "life",
    "child",  "world",    "school", "state",  "family",  "group",  "country", "problem",  "hand",
    "part",   "place",    "case",   "week",   "company", "system", "program", "question", "work",
    "number", "night",    "point",  "home",   "water",   "room",   "mother",  "area",     "money",
    "story",  "fact",     "month",  "lot",    "right",   "study",  "book",    "eye",      "job",
    "word",   "business", "issue",  "side",   "kind",    "head",   "house",   "service",  "friend",
    "father", "power",    "hour",   "game",   "line",    "end",    "member",  "law",      "car",
    "city",   "name",     "team",   "minute", "idea",    "body",   "back",    "parent",   "face",
    "others", "level",    "office", "door",   "health",  "person", "art",     "war"};
// With fewer words two prompts might begin alike.
constexpr size_t kMinWords = 8;

}  // namespace

Prompts::Prompts(int32_t n_tokens, uint64_t seed, const CountTokens& count)
    : words_(kWords.begin(), kWords.end()), n_words_(n_tokens), random_(seed) {
  const std::optional<int64_t> base = count("the");
  if (!base.has_value()) return;
  std::vector<std::string_view> single;
  for (const std::string_view word : kWords) {
    if (count("the " + std::string(word)) == *base + 1) single.push_back(word);
  }
  if (single.size() < kMinWords) return;
  words_ = std::move(single);
  // "the" has *base tokens, those at the beginning of a text included; each further word has one.
  n_words_ = std::max<int64_t>(n_tokens - *base + 1, 1);
  is_exact_ = count(next()) == n_tokens;
}

std::string Prompts::next() {
  std::string text = "the";
  std::uniform_int_distribution<size_t> draw(0, words_.size() - 1);
  for (int64_t i = 1; i < n_words_; ++i) {
    text += ' ';
    text += words_[draw(random_)];
  }
  return text;
}

}  // namespace pagoda::client
