// Byte-pair merging (Sennrich, Haddow and Birch, 2016) of one piece of text.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda::model {

// The merges of a vocabulary. Immutable once filled; any thread may call the const methods.
class BpeMerger {
 public:
  // Memory that a caller keeps over the pieces of one text.
  struct Scratch {
    struct Symbol {
      TokenId id;
      uint32_t prev;
      uint32_t next;
      uint32_t rank;  // of the pair with the next symbol, kNoRank: they don't merge
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol
  };

  void reserve(size_t n) { pairs_.reserve(n); }
  // A smaller rank merges first. Of a pair given twice the last counts.
  void add(TokenId left, TokenId right, uint32_t rank, TokenId merged) {
    pairs_[key(left, right)] = {rank, merged};
  }

  // Merges `symbols` (fewer than 2^32 - 1) until no pair is left, always the pair of smallest rank
  // and of equals the leftmost, and appends the result. O(n log n) in their number.
  void merge(std::span<const TokenId> symbols, Scratch& scratch, std::vector<TokenId>& ids) const;

 private:
  struct Pair {
    uint32_t rank = kNoRank;
    TokenId merged = -1;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  static uint64_t key(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Pair find(TokenId left, TokenId right) const {
    const auto it = pairs_.find(key(left, right));
    return it == pairs_.end() ? Pair{} : it->second;
  }
  void merge_short(std::span<const TokenId> symbols, std::vector<TokenId>& ids) const;
  void merge_long(std::span<const TokenId> symbols, Scratch& scratch,
                  std::vector<TokenId>& ids) const;
  void rank_pair(uint32_t left, Scratch& scratch) const;

  absl::flat_hash_map<uint64_t, Pair> pairs_;
};

}  // namespace pagoda::model
