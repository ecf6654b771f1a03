#include "model/tokenizer/bpe_merger.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/check.h"

namespace pagoda::model {
namespace {

// Up to here looking through all pairs for the best one beats the heap.
constexpr size_t kShortLen = 32;
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

void BpeMerger::merge(std::span<const TokenId> symbols, Scratch& scratch,
                      std::vector<TokenId>& ids) const {
  CHECK_LT(symbols.size(), kNone);
  if (symbols.size() <= kShortLen) {
    merge_short(symbols, ids);
  } else {
    merge_long(symbols, scratch, ids);
  }
}

void BpeMerger::merge_short(std::span<const TokenId> symbols, std::vector<TokenId>& ids) const {
  std::array<TokenId, kShortLen> id;
  std::array<Pair, kShortLen> pair;  // [i] of symbols i and i + 1
  size_t n = symbols.size();
  std::copy(symbols.begin(), symbols.end(), id.begin());
  for (size_t i = 0; i + 1 < n; ++i) pair[i] = find(id[i], id[i + 1]);
  while (n > 1) {
    const auto best =
        std::min_element(pair.begin(), pair.begin() + static_cast<ptrdiff_t>(n - 1),
                         [](const Pair& a, const Pair& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const auto at = static_cast<size_t>(best - pair.begin());
    id[at] = best->merged;
    for (size_t i = at + 1; i + 1 < n; ++i) id[i] = id[i + 1];
    for (size_t i = at; i + 2 < n; ++i) pair[i] = pair[i + 1];
    --n;
    if (at > 0) pair[at - 1] = find(id[at - 1], id[at]);
    if (at + 1 < n) pair[at] = find(id[at], id[at + 1]);
  }
  ids.insert(ids.end(), id.begin(), id.begin() + static_cast<ptrdiff_t>(n));
}

// An entry of the heap is stale when its symbol's rank is no longer the entry's. A pair's rank is
// its own, and a pair that has gone can't come back at the same place, so equal ranks mean the same
// pair.
void BpeMerger::rank_pair(uint32_t left, Scratch& scratch) const {
  Scratch::Symbol& symbol = scratch.symbols[left];
  symbol.rank = kNoRank;
  if (symbol.next == kNone) return;
  symbol.rank = find(symbol.id, scratch.symbols[symbol.next].id).rank;
  if (symbol.rank == kNoRank) return;
  scratch.heap.push_back(static_cast<uint64_t>(symbol.rank) << 32 | left);
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void BpeMerger::merge_long(std::span<const TokenId> symbols, Scratch& scratch,
                           std::vector<TokenId>& ids) const {
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<Scratch::Symbol>& list = scratch.symbols;
  list.resize(n);
  scratch.heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    list[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1, kNoRank};
  }
  for (uint32_t i = 0; i < n; ++i) rank_pair(i, scratch);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
    const uint64_t entry = scratch.heap.back();
    scratch.heap.pop_back();
    const auto at = static_cast<uint32_t>(entry & UINT32_MAX);
    Scratch::Symbol& left = list[at];
    if (left.rank != static_cast<uint32_t>(entry >> 32)) continue;
    Scratch::Symbol& right = list[left.next];
    left.id = find(left.id, right.id).merged;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next != kNone) list[left.next].prev = at;
    rank_pair(at, scratch);
    if (left.prev != kNone) rank_pair(left.prev, scratch);
  }
  for (uint32_t i = 0; i != kNone; i = list[i].next) ids.push_back(list[i].id);
}

}  // namespace pagoda::model
