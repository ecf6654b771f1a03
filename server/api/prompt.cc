#include "server/api/prompt.h"

#include <algorithm>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

// A text that is to be truncated is tokenized whole, as only its end cannot be told from its bytes.
constexpr size_t kTruncatableContexts = 16;

absl::Status too_long(absl::Status status) {
  return with_code(std::move(status), "context_length_exceeded");
}

}  // namespace

void encode_text(const model::Tokenizer& tokenizer, std::string_view text, bool add_special,
                 std::vector<TokenId>& ids) {
  const model::Vocabulary& vocabulary = tokenizer.vocabulary();
  if (add_special && vocabulary.add_bos && vocabulary.bos >= 0) ids.push_back(vocabulary.bos);
  tokenizer.encode(text, model::SpecialTokens::kParse, ids);
}

absl::Status check_text_length(const ServedModel& model, const GenerationRequest& request,
                               size_t text_bytes, std::string_view field) {
  const size_t least = text_bytes / static_cast<size_t>(model.max_token_bytes);
  const size_t n_contexts = request.truncate_prompt_tokens != 0 ? kTruncatableContexts : 1;
  if (least <= static_cast<size_t>(model.max_model_len) * n_contexts) return absl::OkStatus();
  return too_long(bad_field(field, "has {} bytes, which is at least {} tokens; the context has {}",
                            text_bytes, least, model.max_model_len));
}

absl::Status fit_prompt(const ServedModel& model, const GenerationRequest& request,
                        std::string_view field, std::string_view length_field,
                        std::vector<TokenId>& ids) {
  const int64_t max_len = model.max_model_len;
  const int64_t wanted = request.has_max_tokens ? request.max_tokens
                                                : std::max<int64_t>(1, request.sampling.min_tokens);
  if (request.truncate_prompt_tokens != 0) {
    const int64_t kept = request.truncate_prompt_tokens > 0
                             ? request.truncate_prompt_tokens
                             : std::max<int64_t>(1, max_len - wanted);
    if (std::ssize(ids) > kept) ids.erase(ids.begin(), ids.end() - kept);
  }
  const int64_t prompt_len = std::ssize(ids);
  if (prompt_len == 0) return bad_field(field, "must have at least one token");
  if (prompt_len <= max_len && wanted <= max_len - prompt_len) return absl::OkStatus();
  const std::string_view cause = prompt_len >= max_len    ? field
                                 : request.has_max_tokens ? length_field
                                                          : "min_tokens";
  return too_long(with_param(
      base::invalid_argument("the context has {} tokens, and the request needs more: {} in the "
                             "prompt and {} for the answer",
                             max_len, prompt_len, wanted),
      cause));
}

std::vector<std::vector<TokenId>> encode_bad_words(const model::Tokenizer& tokenizer,
                                                   std::span<const std::string> words) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    const size_t begin = std::min(word.find_first_not_of(' '), word.size());
    const std::string bare = word.substr(begin);
    for (const std::string& form : {bare, " " + bare}) {
      std::vector<TokenId> ids;
      tokenizer.encode(form, model::SpecialTokens::kAsText, ids);
      if (ids.empty() || std::ranges::find(sequences, ids) != sequences.end()) continue;
      sequences.push_back(std::move(ids));
    }
  }
  return sequences;
}

}  // namespace pagoda::api
