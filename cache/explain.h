// For a prompt: block by block where its KV would come from, and why what is missing is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/cost_model.h"
#include "cache/eviction_log.h"
#include "cache/tier.h"

namespace pagoda::cache {

enum class Source : uint8_t { kDevice, kHost, kSsd, kComputed };

// Why a block would be computed.
enum class Miss : uint8_t {
  kNone,         // it would not
  kNoPrefix,     // nothing with these tokens behind the same beginning was kept
  kShort,        // less than a block is left, or it holds the prompt's last token
  kEvicted,      // it was there; see cause and age
  kSalt,         // the same tokens lie under another salt or adapter
  kUnreachable,  // it lies in a tier, but a block before it is gone
  kCheaper,      // it lies in a tier, and computing is predicted to be faster
};

struct BlockAccount {
  int32_t begin = 0;  // tokens [begin, end) of the prompt
  int32_t end = 0;
  Source source = Source::kComputed;
  Miss miss = Miss::kNone;
  std::optional<Cause> cause;  // of kEvicted
  double age_s = 0;            // since then
  double predicted_s = 0;      // for this block alone
};

struct Explanation {
  std::vector<BlockAccount> blocks;
  std::array<int32_t, 4> n_tokens{};  // by Source
  // Where the prompt leaves what is kept in its scope: a position, and the tokens that were kept
  // there instead. -1: it does not, or nothing is kept.
  int32_t parts_at = -1;
  std::vector<int32_t> kept_instead;
  RestoreAnswer restore;   // about what lies below the device; all 0 without
  double predicted_s = 0;  // until the first token can be drawn, others' work left out
};

}  // namespace pagoda::cache
