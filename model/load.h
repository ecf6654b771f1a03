// From a file to everything that a server needs of a model.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fs.h"
#include "base/hash.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights.h"

namespace pagoda::model {

// Immutable. The weights live in the backend's memory, so it must outlive this.
struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Weights> weights;

  const base::Digest256& digest() const { return weights->digest; }
};

// Reads a GGUF file; `progress` may be empty and is called on the calling thread. Errors are one
// sentence that names the file and the key or tensor: kNotFound, kInvalidArgument, kUnimplemented
// (another architecture or tokenizer), kResourceExhausted.
absl::StatusOr<LoadedModel> load_model(base::FileSystem& fs, const std::string& path,
                                       Backend& backend, const LoadProgress& progress);

}  // namespace pagoda::model
