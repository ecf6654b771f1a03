// Finds the tokens that are taken from the text before any pre-tokenizer sees it: control tokens
// and tokens that a user defined.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::model {

// Bytes of a text: [begin, end).
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

struct AddedMatch {
  TextRange range;
  TokenId id = -1;
};

// An Aho-Corasick automaton (Aho and Corasick, 1975) of the tokens written backwards. Run from the
// end of the text to its start, it stands at each position in the state that names the longest
// token which begins there, so the leftmost-longest cover falls out in one forward walk, in time
// linear in the text whatever the tokens are. Immutable after creation; any thread may call.
class AddedTokens {
 public:
  // Takes the tokens of kind kControl, kUnknown and kUserDefined. Of equal texts the first counts.
  // An empty or ill-formed text can't stand in a prompt between whole characters and is left out.
  explicit AddedTokens(const Vocabulary& vocabulary);

  // Matches from left to right that don't overlap. `text` is UTF-8; a special token counts only
  // inside one of `special` (sorted, disjoint, not touching).
  std::vector<AddedMatch> find(std::string_view text, std::span<const TextRange> special) const;

 private:
  struct Node {
    uint32_t fail = 0;     // the longest proper suffix that is also a path from the root
    uint32_t shorter = 0;  // the nearest node down the fail links that ends a token, 0: none
    uint32_t len = 0;      // of the token that ends here, 0: none
    TokenId id = -1;
    bool special = false;
  };

  void insert(std::string_view text, TokenId id, bool special);
  void link();
  uint32_t step(uint32_t node, uint8_t byte) const;
  // The longest token at a node that may stand at `begin`, where kParse text ends at `special_end`.
  const Node* longest_allowed(uint32_t node, size_t begin, size_t special_end) const;

  static uint64_t edge_key(uint32_t node, uint8_t byte) {
    return (static_cast<uint64_t>(node) << 8) | byte;
  }

  std::vector<Node> nodes_ = std::vector<Node>(1);  // [0] is the root
  std::array<uint32_t, 256> root_{};                // the root's edges, 0: none
  absl::flat_hash_map<uint64_t, uint32_t> edges_;   // the other nodes' edges, by edge_key
};

}  // namespace pagoda::model
