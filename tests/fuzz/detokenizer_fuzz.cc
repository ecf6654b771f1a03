// Tokens to text: whatever the bytes of the tokens and wherever the stop strings are cut, what
// comes out is valid UTF-8, the same as of the whole at once, and ends before the first stop
// string.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/utf8.h"
#include "server/engine/output.h"

namespace {

using pagoda::engine::StopMatcher;
using pagoda::model::Utf8Stream;

bool is_utf8(const std::string& text) { return pagoda::model::utf8_valid_len(text) == text.size(); }

struct Streamed {
  std::string text;
  bool stopped = false;
};

Streamed stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
                bool include_stop) {
  Utf8Stream utf8;
  StopMatcher matcher(stops, include_stop);
  Streamed result;
  const auto add = [&](std::string text) {
    CHECK(is_utf8(text));
    result.text += matcher.push(text);
  };
  for (const std::string& piece : pieces) {
    add(utf8.push(piece));
    if (matcher.stopped()) break;
  }
  if (!matcher.stopped()) add(utf8.finish());
  if (!matcher.stopped()) result.text += matcher.finish();
  result.stopped = matcher.stopped();
  return result;
}

}  // namespace

// The input: a byte of options, stop strings each ended by 0xFE, 0xFF, then pieces each ended by
// 0xFF.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 4096) return 0;
  const bool include_stop = (data[0] & 1) != 0;
  std::vector<std::string> stops;
  std::vector<std::string> pieces(1);
  std::string whole;
  bool in_stops = true;
  std::string stop;
  for (size_t i = 1; i < size; ++i) {
    const char byte = static_cast<char>(data[i]);
    if (data[i] == 0xFF) {
      if (!in_stops) pieces.emplace_back();
      in_stops = false;
    } else if (in_stops && data[i] == 0xFE) {
      if (!stop.empty() && is_utf8(stop)) stops.push_back(stop);
      stop.clear();
    } else if (in_stops) {
      stop += byte;
    } else {
      pieces.back() += byte;
      whole += byte;
    }
  }
  std::vector<std::string> bytes;
  for (const char byte : whole) bytes.emplace_back(1, byte);

  const Streamed as_cut = stream(pieces, stops, include_stop);
  const Streamed by_byte = stream(bytes, stops, include_stop);
  CHECK_EQ(as_cut.text, by_byte.text);
  CHECK_EQ(as_cut.stopped, by_byte.stopped);
  if (include_stop) return 0;
  for (const std::string& each : stops) {
    CHECK(as_cut.text.find(each) == std::string::npos);
  }
  return 0;
}
