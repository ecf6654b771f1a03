// From what a user typed to the model file that is meant.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/fs.h"
#include "server/config.h"

namespace pagoda {

// The file that a MODEL argument means: `demo` is looked up under PAGODA_HOME.
std::string model_path(const std::string& model, const GetEnvironment& environment);

// The same, if a file is there. kNotFound and kInvalidArgument (a folder, an address) are one
// sentence that says what to do instead.
absl::StatusOr<std::string> find_model(const std::string& model, const GetEnvironment& environment);

// --chat-template: the content of the file of that name, else the text itself. kInvalidArgument
// when it is neither.
absl::StatusOr<std::string> read_chat_template(base::FileSystem& fs, const std::string& value);

}  // namespace pagoda
