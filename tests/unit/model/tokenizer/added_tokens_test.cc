#include "model/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/model/tokenizer/byte_vocabulary.h"

namespace pagoda::model {
namespace {

bool allowed(const Vocabulary& vocabulary, size_t id, TextRange at,
             const std::vector<TextRange>& special) {
  if (vocabulary.kinds[id] == TokenKind::kUserDefined) return true;
  for (const TextRange& range : special) {
    if (at.begin >= range.begin && at.end <= range.end) return true;
  }
  return false;
}

// Tries every token at every place.
std::vector<std::pair<size_t, TokenId>> find_slowly(const Vocabulary& vocabulary,
                                                    std::string_view text,
                                                    const std::vector<TextRange>& special) {
  std::vector<std::pair<size_t, TokenId>> matches;
  for (size_t at = 0; at < text.size();) {
    size_t best_len = 0;
    TokenId best = -1;
    for (size_t id = 0; id < vocabulary.texts.size(); ++id) {
      const std::string& token = vocabulary.texts[id];
      if (token.size() <= best_len || !text.substr(at).starts_with(token)) continue;
      if (!allowed(vocabulary, id, {at, at + token.size()}, special)) continue;
      best_len = token.size();
      best = static_cast<TokenId>(id);
    }
    if (best >= 0) matches.emplace_back(at, best);
    at += std::max<size_t>(best_len, 1);
  }
  return matches;
}

TEST(AddedTokens, EqualTheSlowSearchOnRandomTokens) {
  std::mt19937 rng(3);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  const auto word = [&](size_t max_len) {
    std::string text(1 + below(max_len), ' ');
    for (char& c : text) c = static_cast<char>('a' + below(3));
    return text;
  };
  size_t n_matches = 0;
  for (int round = 0; round < 2000; ++round) {
    Vocabulary vocabulary;
    std::set<std::string> texts;
    for (size_t i = below(8); i > 0; --i) texts.insert(word(6));
    for (const std::string& text : texts) {
      add_token(vocabulary, text, below(2) == 0 ? TokenKind::kControl : TokenKind::kUserDefined);
    }
    const std::string text = word(60);
    std::vector<TextRange> special;
    for (size_t begin = below(12); begin < text.size(); begin += 1 + below(12)) {
      const size_t end = std::min(text.size(), begin + 1 + below(20));
      special.push_back({begin, end});
      begin = end;
    }
    std::vector<std::pair<size_t, TokenId>> found;
    for (const AddedMatch& match : AddedTokens(vocabulary).find(text, special)) {
      found.emplace_back(match.range.begin, match.id);
      EXPECT_EQ(text.substr(match.range.begin, match.range.end - match.range.begin),
                vocabulary.texts[static_cast<size_t>(match.id)]);
    }
    n_matches += found.size();
    ASSERT_EQ(found, find_slowly(vocabulary, text, special)) << text;
  }
  EXPECT_GT(n_matches, 10'000u);
}

TEST(AddedTokens, TextFullOfBeginningsTakesLinearTime) {
  Vocabulary vocabulary;
  add_token(vocabulary, "b" + std::string(100'000, 'a') + "b", TokenKind::kUserDefined);
  add_token(vocabulary, "c", TokenKind::kUserDefined);
  const AddedTokens added(vocabulary);
  const std::string text(4'000'000, 'a');
  EXPECT_TRUE(added.find(text, {}).empty());
  EXPECT_EQ(added.find(text + "c", {}).size(), 1u);
}

TEST(AddedTokens, OfEqualTextsTheFirstCounts) {
  Vocabulary vocabulary;
  add_token(vocabulary, "x", TokenKind::kNormal);
  add_token(vocabulary, "x", TokenKind::kUserDefined);
  add_token(vocabulary, "x", TokenKind::kControl);
  const auto matches = AddedTokens(vocabulary).find("x", {});
  ASSERT_EQ(matches.size(), 1u);
  EXPECT_EQ(matches[0].id, 1);
}

}  // namespace
}  // namespace pagoda::model
