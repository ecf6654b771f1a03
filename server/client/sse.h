// Server-sent events out of the bytes of a body, wherever those are cut.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pagoda::client {

// Reads the format of the HTML standard: lines end in \n, \r\n or \r; an event is the `data` lines
// before an empty line, joined by \n; comments and other fields are skipped, and so is an event
// that the stream ends in. One thread.
class SseReader {
 public:
  // False ends the reading of this piece; what follows in it is dropped.
  using OnEvent = std::function<bool(std::string_view data)>;

  explicit SseReader(size_t max_event_bytes = 8 << 20) : max_event_bytes_(max_event_bytes) {}

  // kResourceExhausted when an event is larger than the limit.
  absl::Status push(std::string_view bytes, const OnEvent& on_event);

 private:
  bool take_line(const OnEvent& on_event);

  size_t max_event_bytes_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // a \n that comes now belongs to the \r before it
  bool at_start_ = true;   // a byte order mark may stand here
};

}  // namespace pagoda::client
