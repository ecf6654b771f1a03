// Any bytes as a body of events: the same events whether they come at once or in pieces, and no
// event that the reader of JSON cannot refuse.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/client/open_ai.h"
#include "server/client/sse.h"

namespace {

std::vector<std::string> read(std::string_view bytes, size_t step) {
  pagoda::client::SseReader reader(4096);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const absl::Status status = reader.push(bytes.substr(at, step), [&](std::string_view data) {
      events.emplace_back(data);
      return true;
    });
    if (!status.ok()) break;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // Below the reader's limit, which counts what is held and so depends on the cuts.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size < 4096 ? size : 4096);
  const std::vector<std::string> whole = read(bytes, bytes.size());
  CHECK(read(bytes, 1) == whole);
  CHECK(read(bytes, 1 + data[0] % 16) == whole);
  for (const std::string& event : whole) {
    (void)pagoda::client::parse_stream_event(event);
    (void)pagoda::client::error_message(event);
  }
  return 0;
}
