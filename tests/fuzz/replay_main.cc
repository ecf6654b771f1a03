// Runs a fuzz target over kept inputs: every file of the folders and every file named on the
// command line, in the order of their names. The program for a build without libFuzzer.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> inputs_of(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path given = argv[i];
    if (!std::filesystem::is_directory(given)) {
      files.push_back(given);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(given)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

int replay(int argc, char** argv) {
  const std::vector<std::filesystem::path> files = inputs_of(argc, argv);
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      fmt::print(stderr, "{}: cannot be read\n", path.string());
      return 1;
    }
    const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
    // A copy of the exact size, so that a read past the end is one the sanitizer sees.
    std::vector<uint8_t> bytes(text.begin(), text.end());
    bytes.shrink_to_fit();
    // Said first: after a crash the last line names the input.
    fmt::print("{} ({} bytes)\n", path.string(), bytes.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  fmt::print("{} inputs replayed\n", files.size());
  return files.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return replay(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "replay failed: {}\n", error.what());
    return 1;
  }
}
