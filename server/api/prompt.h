// From text to the ids of a prompt that fits the context. On a worker.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/api/context.h"
#include "server/api/generation_request.h"

namespace pagoda::api {

// Whether a prompt gets the beginning-of-sequence token in front: the model wants one and the
// request asks for special tokens.
bool begins_with_bos(const model::Vocabulary& vocabulary, bool add_special);

// Appends the ids of a raw text: control tokens written in it are control tokens. Before them the
// beginning-of-sequence token, if the model wants one and add_special asks.
void encode_text(const model::Tokenizer& tokenizer, std::string_view text, bool add_special,
                 std::vector<TokenId>& ids);

// kInvalidArgument before any work for a text that is longer than the context could be, or with
// truncation sixteen times that. `field` is the one that holds it.
absl::Status check_text_length(const ServedModel& model, const GenerationRequest& request,
                               size_t text_bytes, std::string_view field);

// Truncates the ids if the request asks for it, then checks that they and the answer fit the
// context. A beginning-of-sequence token, `bos`, stays where it begins the prompt. Errors name
// `field`, which holds the prompt.
absl::Status fit_prompt(const ServedModel& model, const GenerationRequest& request,
                        std::string_view field, TokenId bos, std::vector<TokenId>& ids);

// kInvalidArgument when the log probabilities that an answer to prompts of these lengths holds at
// once are too many for the memory that one request may use.
absl::Status check_logprobs(const ServedModel& model, const GenerationRequest& request,
                            std::span<const Prompt> prompts);

// The sequences of ids that a word may come as, at the start of a text and after a blank.
std::vector<std::vector<TokenId>> encode_bad_words(const model::Tokenizer& tokenizer,
                                                   std::span<const std::string> words);

}  // namespace pagoda::api
