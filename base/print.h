// Output for people that may fail: a full disk or a reader that has left is no reason to end.
#pragma once

#include <cstdio>
#include <string_view>

namespace pagoda::base {

// Writes what the file takes, at once; fmt::print would throw.
inline void print(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace pagoda::base
