#include "model/tokenizer/utf8.h"

#include <cstring>

#include "base/check.h"

namespace pagoda::model {
namespace {

// Table 3-7 of the Unicode standard: a lead byte fixes the length and the range of the second byte;
// all later bytes are 80..BF.
struct Lead {
  size_t len = 0;  // 0: no character begins so
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

size_t ascii_len(std::string_view bytes) {
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    if ((word & 0x8080808080808080) != 0) break;
  }
  while (i < bytes.size() && static_cast<uint8_t>(bytes[i]) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  DCHECK(!bytes.empty());
  const Lead lead = lead_of(static_cast<uint8_t>(bytes[0]));
  if (lead.len == 0) return {Utf8Kind::kIllFormed, 1};
  for (size_t i = 1; i < lead.len; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kUnfinished, i};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kIllFormed, i};
  }
  return {Utf8Kind::kCharacter, lead.len};
}

size_t utf8_valid_len(std::string_view bytes) {
  size_t len = 0;
  while (len < bytes.size()) {
    const size_t ascii = ascii_len(bytes.substr(len));
    len += ascii;
    while (len < bytes.size() && static_cast<uint8_t>(bytes[len]) >= 0x80) {
      const Utf8Step step = utf8_step(bytes.substr(len));
      if (step.kind != Utf8Kind::kCharacter) return len;
      len += step.len;
    }
  }
  return len;
}

}  // namespace pagoda::model
