#include "server/client/units.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

namespace pagoda {

std::string bytes_text(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // 1023.95 would be shown as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string count_text(int64_t count) {
  static constexpr std::array<const char*, 4> kUnits = {"", " K", " M", " B"};
  double value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}", count) : fmt::format("{:.1f}{}", value, kUnits[unit]);
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 … U+009F are control characters of two bytes.
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) {
      ++i;
    } else if (byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7F)) {
      result += text[i];
    }
  }
  return result;
}

}  // namespace pagoda
