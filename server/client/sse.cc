#include "server/client/sse.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda::client {

absl::Status SseReader::push(std::string_view bytes, const OnEvent& on_event) {
  while (!bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + data_.size() + end > max_event_bytes_) {
      return base::status_error(absl::StatusCode::kResourceExhausted,
                                "the server sent an event of more than {} bytes", max_event_bytes_);
    }
    line_.append(bytes.substr(0, end));
    if (end == bytes.size()) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!take_line(on_event)) break;
  }
  return absl::OkStatus();
}

// False: the receiver has had enough.
bool SseReader::take_line(const OnEvent& on_event) {
  std::string_view line = line_;
  if (at_start_ && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  at_start_ = false;
  bool goes_on = true;
  if (line.empty()) {
    if (has_data_) goes_on = on_event(data_);
    data_.clear();
    has_data_ = false;
  } else if (line == "data" || line.starts_with("data:")) {
    line.remove_prefix(std::min<size_t>(line.size(), 5));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += line;
    has_data_ = true;
  }
  line_.clear();
  return goes_on;
}

}  // namespace pagoda::client
