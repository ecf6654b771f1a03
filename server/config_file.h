// The configuration file: YAML whose keys are the names of options.
//
//   port: 8001
//   served-model-name: [small, default]
//
// A file is one mapping from names to a value, or to a list of values where the option is
// repeatable. Dashes and underscores in names are the same. `model` is the MODEL of the command
// line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/fs.h"
#include "server/config.h"

namespace pagoda {

inline constexpr size_t kMaxConfigBytes = 256 << 10;

// Sets what the text says. Time and memory are linear in its length: aliases and nestings that no
// option has end the reading where they begin. kInvalidArgument: "PATH:LINE: …", one sentence.
absl::Status apply_config_text(std::span<const Option> table, std::string_view text,
                               const std::string& path, ServeOptions& options);

// The same for a file. Errors of the file system name it.
absl::Status apply_config_file(std::span<const Option> table, base::FileSystem& fs,
                               const std::string& path, ServeOptions& options);

}  // namespace pagoda
