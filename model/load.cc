#include "model/load.h"

#include <utility>

#include "base/check.h"
#include "model/gguf.h"

namespace pagoda::model {

absl::StatusOr<LoadedModel> load_model(base::FileSystem& fs, const std::string& path,
                                       Backend& backend, const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::open(fs, path));
  LoadedModel model;
  ASSIGN_OR_RETURN(model.config, config_from_gguf(*file));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, vocabulary_from_gguf(*file));
  if (vocabulary.texts.size() != static_cast<size_t>(model.config.n_vocab)) {
    return base::invalid_argument(
        "{}: key 'tokenizer.ggml.tokens' has {} values, but the model's vocabulary has {}", path,
        vocabulary.texts.size(), model.config.n_vocab);
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = make_bpe_tokenizer(std::move(vocabulary));
  if (!tokenizer.ok()) {
    return base::status_error(tokenizer.status().code(), "{}: {}", path,
                              base::message_of(tokenizer.status()));
  }
  model.tokenizer = *std::move(tokenizer);
  ASSIGN_OR_RETURN(Weights weights, load_weights(*file, model.config, backend, progress));
  model.weights = std::make_unique<Weights>(std::move(weights));
  return model;
}

}  // namespace pagoda::model
