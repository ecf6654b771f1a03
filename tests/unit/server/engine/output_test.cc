#include "server/engine/output.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace pagoda::engine {
namespace {

struct Case {
  std::vector<std::string> pieces;
  std::vector<std::string> stops;
  std::string text;
  bool stopped = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{"Answer: 4", "2\n", "\nQues", "tion:", " next"}, {"\n\nQuestion:"}, "Answer: 42", true},
      {{"a\n", "\nQues", "t begins"}, {"\n\nQuestion:"}, "a\n\nQuest begins", false},
      {{"xxx", "#", "#", "#", "#END"}, {"##E"}, "xxx##", true},
      {{"ca", "\xC3\xA9", " bar"}, {"\xC3\xA9"}, "ca", true},
      {{"ab", "ab", "ac"}, {"abac"}, "ab", true},
      {{"tail#"}, {"##"}, "tail#", false},
      {{"one two"}, {"two", "one two"}, "", true},
      {{"xabcy"}, {"abcd", "bc"}, "xa", true},
      {{"aaaa"}, {"aab", "aac"}, "aaaa", false},
      {{""}, {"x"}, "", false},
  };
  return all;
}

std::string run(const std::vector<std::string>& pieces, const Case& c, bool& stopped) {
  StopMatcher matcher(c.stops, false);
  std::string text;
  for (const std::string& piece : pieces) text += matcher.push(piece);
  text += matcher.finish();
  stopped = matcher.stopped();
  return text;
}

TEST(StopMatcher, FindsStopsOverPieceBorders) {
  for (const Case& c : cases()) {
    bool stopped = false;
    EXPECT_EQ(run(c.pieces, c, stopped), c.text);
    EXPECT_EQ(stopped, c.stopped) << c.text;
  }
}

TEST(StopMatcher, TheTextDoesNotDependOnTheCuts) {
  for (const Case& c : cases()) {
    std::string whole;
    for (const std::string& piece : c.pieces) whole += piece;
    const size_t n_borders = whole.empty() ? 0 : std::min<size_t>(whole.size() - 1, 12);
    for (size_t cuts = 0; cuts < (size_t{1} << n_borders); ++cuts) {
      std::vector<std::string> pieces = {""};
      for (size_t i = 0; i < whole.size(); ++i) {
        pieces.back() += whole[i];
        if (i < n_borders && ((cuts >> i) & 1) != 0) pieces.emplace_back();
      }
      bool stopped = false;
      ASSERT_EQ(run(pieces, c, stopped), c.text) << cuts;
      ASSERT_EQ(stopped, c.stopped);
    }
  }
}

TEST(StopMatcher, NothingOfAStopIsShownEarly) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.push("a S"), "a ");
  EXPECT_EQ(matcher.push("TO"), "");
  EXPECT_EQ(matcher.push("x"), "STOx");
  EXPECT_EQ(matcher.push("ST"), "");
  EXPECT_EQ(matcher.finish(), "ST");
}

TEST(StopMatcher, CanIncludeTheStop) {
  StopMatcher matcher({"##"}, true);
  EXPECT_EQ(matcher.push("ab#"), "ab");
  EXPECT_EQ(matcher.push("#c"), "##");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcher, SaysWhichStopItWas) {
  const auto matched = [](const std::vector<std::string>& stops, const std::string& text) {
    StopMatcher matcher(stops, false);
    for (const char c : text) matcher.push(std::string(1, c));
    return matcher.matched();
  };
  EXPECT_EQ(matched({"x", "bc", "abcd"}, "abcd"), 1);
  EXPECT_EQ(matched({"bc", "abc"}, "abc"), 1);  // both end here, and it begins first
  EXPECT_EQ(matched({"abcd", "cd"}, "abcd"), 0);
  EXPECT_EQ(matched({"x", "y"}, "abc"), -1);
}

// A token is the byte of its id.
class ByteTokenizer final : public model::Tokenizer {
 public:
  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_.emplace_back(1, static_cast<char>(i));
  }
  void encode(std::string_view text, model::SpecialTokens,
              std::vector<TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  void encode_parts(std::span<const model::TextPart> parts,
                    std::vector<TokenId>& ids) const override {
    for (const model::TextPart& part : parts) encode(part.text, part.special, ids);
  }
  std::string_view token_bytes(TokenId id) const override {
    return bytes_[static_cast<size_t>(id)];
  }
  model::TokenKind token_kind(TokenId) const override { return model::TokenKind::kNormal; }
  int32_t n_vocab() const override { return 256; }
  const model::Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  std::vector<std::string> bytes_;
  model::Vocabulary vocabulary_;
};

// Collects the deltas of a stream and waits for its end.
class Collector {
 public:
  OutputStream::OnDelta on_delta() {
    return [this](OutputDelta&& delta) {
      std::lock_guard lock(mutex_);
      text += delta.text;
      n_tokens += delta.tokens.size();
      n_logprobs += delta.logprobs.size();
      if (delta.finished) {
        last = std::move(delta);
        ++n_finished;
        done_.notify_all();
      }
    };
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return n_finished > 0; });
  }
  std::string text;
  size_t n_tokens = 0;
  size_t n_logprobs = 0;
  int n_finished = 0;
  OutputDelta last;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
};

TokenEvent token(char c) {
  TokenEvent event;
  event.result.token = static_cast<unsigned char>(c);
  event.usage = {5, 0, 3};
  return event;
}

TokenEvent finish(FinishReason reason) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kFinish;
  event.reason = reason;
  event.usage = {5, 9, 3};
  return event;
}

TEST(OutputStream, AStopStringCancelsAndNothingFollows) {
  const ByteTokenizer tokenizer;
  Collector collector;
  std::atomic<int> n_cancels = 0;
  {
    base::WorkerPool pool(2, 16);
    OutputOptions options;
    options.stop = {"END"};
    options.logprobs = true;
    auto stream =
        OutputStream::create(tokenizer, pool, options, collector.on_delta(), [&] { ++n_cancels; });
    for (const char c : std::string("abENDmore")) stream->push(token(c));
    stream->push(finish(FinishReason::kStop));
    collector.wait();
  }
  EXPECT_EQ(collector.text, "ab");
  EXPECT_EQ(n_cancels, 1);
  EXPECT_EQ(collector.n_finished, 1);
  EXPECT_EQ(collector.n_tokens, 5U);
  EXPECT_EQ(collector.n_logprobs, 5U);
  EXPECT_EQ(collector.last.usage.completion_tokens, 5);
  EXPECT_EQ(collector.last.usage.cached_tokens, 3);
  EXPECT_EQ(collector.last.matched_stop, 0);
  EXPECT_EQ(collector.last.stop_token, -1);
}

TEST(OutputStream, SaysWhatEndedTheAnswer) {
  const ByteTokenizer tokenizer;
  const auto last_delta = [&](const std::string& text, TokenId stop_token) {
    Collector collector;
    base::WorkerPool pool(1, 16);
    OutputOptions options;
    options.stop = {"no", "\xEF\xBF\xBD"};
    auto stream = OutputStream::create(tokenizer, pool, options, collector.on_delta(), [] {});
    for (const char c : text) stream->push(token(c));
    TokenEvent end = finish(FinishReason::kStop);
    end.stop_token = stop_token;
    stream->push(std::move(end));
    collector.wait();
    return collector.last;
  };
  EXPECT_EQ(last_delta("a", 7).stop_token, 7);
  EXPECT_EQ(last_delta("a", 7).matched_stop, -1);
  // The unfinished character at the end completes a stop string.
  EXPECT_EQ(last_delta("a\xE6\xAD", 7).stop_token, -1);
  EXPECT_EQ(last_delta("a\xE6\xAD", 7).matched_stop, 1);
}

TEST(OutputStream, WhatIsPushedTogetherIsOneDelta) {
  const ByteTokenizer tokenizer;
  for (int i = 0; i < 200; ++i) {
    Collector collector;
    base::WorkerPool pool(1, 16);
    auto stream = OutputStream::create(tokenizer, pool, {}, collector.on_delta(), [] {});
    stream->push(token('a'));
    TokenEvent events[] = {token('b'), finish(FinishReason::kLength)};
    stream->push_together(events);
    collector.wait();
    EXPECT_TRUE(collector.last.text.ends_with('b'));
    EXPECT_FALSE(collector.last.tokens.empty());
  }
}

TEST(OutputStream, AnUnfinishedCharacterAndAHeldStopAreFlushedAtTheEnd) {
  const ByteTokenizer tokenizer;
  Collector collector;
  {
    base::WorkerPool pool(1, 16);
    OutputOptions options;
    options.stop = {"##"};
    auto stream = OutputStream::create(tokenizer, pool, options, collector.on_delta(), [] {});
    for (const char c : std::string("a#\xE6\xAD")) stream->push(token(c));
    stream->push(finish(FinishReason::kLength));
    collector.wait();
  }
  EXPECT_EQ(collector.text, "a#\xEF\xBF\xBD");
  EXPECT_EQ(collector.last.reason, FinishReason::kLength);
  EXPECT_EQ(collector.last.usage.completion_tokens, 9);
}

}  // namespace
}  // namespace pagoda::engine
