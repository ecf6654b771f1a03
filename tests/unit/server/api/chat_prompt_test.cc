#include "server/api/chat_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "tests/unit/model/tokenizer/byte_vocabulary.h"

namespace pagoda::api {
namespace {

// A turn token that the template makes of the role, as that of Phi-3 and GLM does, is one token;
// the same characters in what a client wrote are text.
TEST(ChatPrompt, ARoleMayBePartOfATurnToken) {
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
