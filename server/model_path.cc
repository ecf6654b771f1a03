#include "server/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr char kDemoFile[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr size_t kMaxTemplateBytes = 1 << 20;
// Entries of a folder that are looked at for a file to propose.
constexpr int kMaxEntries = 10'000;

// The first GGUF file of a folder by name; empty: none.
std::string first_gguf(const std::string& folder) {
  std::string first;
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  for (int i = 0; !error && it != std::filesystem::directory_iterator() && i < kMaxEntries; ++i) {
    const std::string path = it->path().string();
    if (it->path().extension() == ".gguf" && (first.empty() || path < first)) first = path;
    it.increment(error);
  }
  return first;
}

}  // namespace

std::string model_path(const std::string& model, const GetEnvironment& environment) {
  if (model != "demo") return model;
  std::string home;
  if (const char* pagoda_home = environment("PAGODA_HOME");
      pagoda_home != nullptr && *pagoda_home != '\0') {
    home = pagoda_home;
  } else {
    const char* user_home = environment("HOME");
    home = fmt::format("{}/.cache/pagoda", user_home == nullptr ? "" : user_home);
  }
  return fmt::format("{}/models/{}", home, kDemoFile);
}

absl::StatusOr<std::string> find_model(const std::string& model,
                                       const GetEnvironment& environment) {
  const std::string path = model_path(model, environment);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::directory) {
    const std::string file = first_gguf(path);
    return base::invalid_argument(
        "{} is a folder; MODEL is a GGUF file{}", path,
        file.empty() ? ", and there is none in it" : fmt::format(", such as {}", file));
  }
  if (status.type() != std::filesystem::file_type::not_found) return path;
  if (model == "demo") {
    return base::status_error(absl::StatusCode::kNotFound,
                              "the demo model is not at {}; run scripts/setup.sh to fetch it",
                              path);
  }
  return base::status_error(absl::StatusCode::kNotFound,
                            "there is no file {}; give the path of a GGUF file, or `demo` for the "
                            "small model that scripts/setup.sh fetches",
                            path);
}

absl::StatusOr<std::string> read_chat_template(base::FileSystem& fs, const std::string& value) {
  // A text with tags or lines is no path, and may be too long to ask the file system for.
  const bool is_text = value.find("{{") != value.npos || value.find("{%") != value.npos ||
                       value.find('\n') != value.npos;
  if (is_text) return value;
  absl::StatusOr<std::string> text = fs.read(value, kMaxTemplateBytes);
  if (text.ok()) return text;
  return base::status_error(text.status().code(),
                            "--chat-template is neither a file that can be read ({}) nor a "
                            "template with {{{{ }}}} or {{% %}} in it",
                            base::message_of(text.status()));
}

}  // namespace pagoda
