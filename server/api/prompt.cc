#include "server/api/prompt.h"

#include <algorithm>

#include "server/api/errors.h"

namespace pagoda::api {
namespace {

// A text that is to be truncated is tokenized whole, as only its end cannot be told from its bytes.
constexpr size_t kTruncatableContexts = 16;
// Some hundred bytes each in the text of an answer.
constexpr int64_t kMaxLogprobEntries = 1 << 20;

absl::Status too_long(absl::Status status) {
  return with_code(std::move(status), "context_length_exceeded");
}

}  // namespace

bool begins_with_bos(const model::Vocabulary& vocabulary, bool add_special) {
  return add_special && vocabulary.add_bos && vocabulary.bos >= 0;
}

void encode_text(const model::Tokenizer& tokenizer, std::string_view text, bool add_special,
                 std::vector<TokenId>& ids) {
  const model::Vocabulary& vocabulary = tokenizer.vocabulary();
  if (begins_with_bos(vocabulary, add_special)) ids.push_back(vocabulary.bos);
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
                        std::string_view field, TokenId bos, std::vector<TokenId>& ids) {
  const int64_t max_len = model.max_model_len;
  const int64_t wanted = request.has_max_tokens ? request.max_tokens
                                                : std::max<int64_t>(1, request.sampling.min_tokens);
  if (request.truncate_prompt_tokens != 0) {
    const int64_t kept = request.truncate_prompt_tokens > 0
                             ? request.truncate_prompt_tokens
                             : std::max<int64_t>(1, max_len - wanted);
    if (std::ssize(ids) > kept) {
      const int64_t n_first = bos >= 0 && ids.front() == bos ? 1 : 0;
      ids.erase(ids.begin() + n_first, ids.end() - (kept - n_first));
    }
  }
  const int64_t prompt_len = std::ssize(ids);
  if (prompt_len == 0) return bad_field(field, "must have at least one token");
  if (prompt_len <= max_len && wanted <= max_len - prompt_len) return absl::OkStatus();
  const std::string_view cause = prompt_len >= max_len    ? field
                                 : request.has_max_tokens ? request.length_field
                                                          : "min_tokens";
  return too_long(with_param(
      base::invalid_argument("the context has {} tokens, and the request needs more: {} in the "
                             "prompt and {} for the answer",
                             max_len, prompt_len, wanted),
      cause));
}

absl::Status check_logprobs(const ServedModel& model, const GenerationRequest& request,
                            std::span<const Prompt> prompts) {
  const engine::SamplingParams& sampling = request.sampling;
  int64_t n_entries = 0;
  for (const Prompt& prompt : prompts) {
    const int64_t prompt_len = std::ssize(prompt.ids);
    n_entries += prompt_len * (sampling.n_prompt_logprobs + 1);
    if (request.stream) continue;  // those of the answer are sent as they come
    n_entries +=
        std::min(request.max_tokens, model.max_model_len - prompt_len) * (sampling.n_logprobs + 1);
  }
  if (n_entries * request.n <= kMaxLogprobEntries) return absl::OkStatus();
  return bad_field(request.prompt_logprobs ? "prompt_logprobs" : "logprobs",
                   "asks for up to {} values in one answer; at most {} are held (fewer tokens, "
                   "answers or alternatives would do, or stream)",
                   n_entries * request.n, kMaxLogprobEntries);
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
