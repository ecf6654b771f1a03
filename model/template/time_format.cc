// strftime_now (format.h).
#include <ctime>

#include "model/template/format.h"

namespace pagoda::model::jinja {

namespace {

// Python answers these itself: microseconds, which there are none of, and the zone, which a time
// without one leaves empty.
std::string resolve_python_fields(std::string_view format) {
  std::string resolved;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      resolved += format[i];
      continue;
    }
    const char field = format[++i];
    if (field == 'f') {
      resolved += "000000";
    } else if (field != 'z' && field != 'Z') {
      resolved += '%';
      resolved += field;
    }
  }
  return resolved;
}

}  // namespace

const Text* format_time(Workspace& workspace, const Text& format, int64_t unix_s) {
  constexpr size_t kMaxFormatBytes = 4096;
  constexpr size_t kMaxGrowth = 256;
  if (format.bytes.size() > kMaxFormatBytes) {
    fail("strftime_now() takes a format of at most {} bytes", kMaxFormatBytes);
  }
  if (format.bytes.find('\0') != std::string_view::npos) fail("a format of time has a NUL byte");
  const std::string resolved = resolve_python_fields(format.bytes);
  const auto seconds = static_cast<time_t>(unix_s);
  std::tm time{};
  if (gmtime_r(&seconds, &time) == nullptr) fail("the time is out of range");
  std::string text(resolved.size() * kMaxGrowth + 1, '\0');
  text.resize(std::strftime(text.data(), text.size(), resolved.c_str(), &time));
  return make_text(workspace, text, format.has_user_bytes());
}

}  // namespace pagoda::model::jinja
