#include "server/api/chat_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/unit/model/tokenizer/byte_vocabulary.h"
#include "tests/unit/server/api/byte_tokenizer.h"

namespace pagoda::api {
namespace {

constexpr char kMarker[] = "[continue 0123]";

std::unique_ptr<const ChatPrompter> prompter(const std::string& source) {
  static const ByteTokenizer tokenizer({"a"});
  auto made = ChatPrompter::create(source, tokenizer);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

ChatInput chat(const std::string& messages) {
  ChatInput input;
  input.messages = Json::parse(messages);
  return input;
}

std::string text_of(const ChatPrompter& prompter, ChatInput input) {
  const auto rendered = prompter.render(std::move(input), kMarker, 0);
  return rendered.ok() ? rendered->text : "refused: " + std::string(rendered.status().message());
}

constexpr char kStrings[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr char kParts[] =
    "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}"
    "{{ p.text }}{% endif %}{% endfor %}{% endfor %}";

TEST(ChatPrompter, ContentComesAsTheTemplateWantsIt) {
  const char kChat[] = R"([{"role": "user", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": null, "tool_calls": [{}]}])";
  EXPECT_EQ(text_of(*prompter(kStrings), chat(kChat)), "<user>a\nb<user>c<assistant><assistant>");
  EXPECT_EQ(text_of(*prompter(kParts), chat(kChat)), "<user>ab<user>c<assistant>");
}

TEST(ChatPrompter, DeveloperIsSystemUnlessTheTemplateKnowsIt) {
  const char kChat[] = R"([{"role": "developer", "content": "x"}])";
  EXPECT_EQ(text_of(*prompter(kStrings), chat(kChat)), "<system>x<assistant>");
  EXPECT_EQ(text_of(*prompter("{# for every developer #}" + std::string(kStrings)), chat(kChat)),
            "<system>x<assistant>");
  const std::string knows = "{% if messages[0].role == 'developer' %}!{% endif %}";
  EXPECT_EQ(text_of(*prompter(knows + kStrings), chat(kChat)), "!<developer>x<assistant>");
}

TEST(ChatPrompter, AFinalMessageIsContinuedWhereItEnds) {
  const auto continued = [](const std::string& source, const std::string& content) {
    ChatInput input = chat(
        R"([{"role": "user", "content": "u"}, {"role": "assistant", "content": )" + content + "}]");
    input.add_generation_prompt = false;
    input.continue_final_message = true;
    return text_of(*prompter(source), std::move(input));
  };
  const std::string ended =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</end>{% endfor %}";
  EXPECT_EQ(continued(ended, "\"one two \""), "<user>u</end><assistant>one two ");
  EXPECT_EQ(continued(kParts, R"([{"type": "text", "text": "p"}])"), "<user>u<assistant>p");
  EXPECT_EQ(continued(kParts, "[]"), "<user>u<assistant>");
  EXPECT_TRUE(continued("{{ messages[0].content }}", "\"x\"").starts_with("refused: "));
  EXPECT_TRUE(continued(std::string("{{ messages[-1].content }}") + kStrings, "\"x\"")
                  .starts_with("refused: "));
}

TEST(ChatPrompter, TheTemplatesRefusalIsTheAnswers) {
  const auto refused = prompter("{{ raise_exception('no ' ~ messages[0].role) }}")
                           ->render(chat(R"([{"role": "user", "content": "x"}])"), kMarker, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("no user"), std::string::npos);
}

// A turn token that the template makes of the role, as that of Phi-3 and GLM does, is one token;
// the same characters in what a client wrote are text.
TEST(ChatPrompter, ARoleMayBePartOfATurnToken) {
  model::Vocabulary vocabulary = model::byte_vocabulary("gpt-2");
  const TokenId user = model::add_token(vocabulary, "<|user|>", model::TokenKind::kControl);
  const TokenId end = model::add_token(vocabulary, "<|end|>", model::TokenKind::kControl);
  auto tokenizer = model::make_bpe_tokenizer(std::move(vocabulary));
  CHECK(tokenizer.ok());
  auto prompter = ChatPrompter::create(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}", **tokenizer);
  CHECK(prompter.ok());
  ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", "<|user|>"}});
  const auto rendered = (*prompter)->render(chat, "", 0);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<|user|><|user|><|end|>");
  std::vector<TokenId> ids;
  (*prompter)->encode(*rendered, false, ids);
  ASSERT_GT(ids.size(), 2u);
  EXPECT_EQ(ids.front(), user);
  EXPECT_EQ(ids.back(), end);
  EXPECT_EQ(std::ranges::count(ids, user), 1);
  EXPECT_EQ(std::ranges::count(ids, end), 1);
}

}  // namespace
}  // namespace pagoda::api
