#include "model/tokenizer/added_tokens.h"

#include <algorithm>

#include "model/tokenizer/utf8.h"

namespace pagoda::model {

AddedTokens::AddedTokens(const Vocabulary& vocabulary) {
  for (size_t i = 0; i < vocabulary.texts.size(); ++i) {
    const TokenKind kind = vocabulary.kinds[i];
    const std::string& text = vocabulary.texts[i];
    if (!is_special(kind) && kind != TokenKind::kUserDefined) continue;
    if (text.empty() || utf8_valid_len(text) != text.size()) continue;
    insert(text, static_cast<TokenId>(i), is_special(kind));
  }
  link();
}

void AddedTokens::insert(std::string_view text, TokenId id, bool special) {
  uint32_t node = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    uint32_t& next = node == 0 ? root_[byte] : edges_[edge_key(node, byte)];
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].len != 0) return;
  nodes_[node].len = static_cast<uint32_t>(text.size());
  nodes_[node].id = id;
  nodes_[node].special = special;
}

// A node's links need those of all nodes nearer to the root, so the edges are taken by depth.
void AddedTokens::link() {
  struct Edge {
    uint32_t from;
    uint32_t to;
    uint8_t byte;
  };
  std::vector<std::vector<Edge>> edges_of(nodes_.size());
  for (const auto& [key, to] : edges_) {
    const auto from = static_cast<uint32_t>(key >> 8);
    edges_of[from].push_back({from, to, static_cast<uint8_t>(key & 0xFF)});
  }
  std::vector<uint32_t> order;
  order.reserve(nodes_.size());
  for (const uint32_t node : root_) {
    if (node != 0) order.push_back(node);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const Edge& edge : edges_of[order[i]]) {
      const uint32_t fail = step(nodes_[edge.from].fail, edge.byte);
      nodes_[edge.to].fail = fail;
      nodes_[edge.to].shorter = nodes_[fail].len != 0 ? fail : nodes_[fail].shorter;
      order.push_back(edge.to);
    }
  }
}

uint32_t AddedTokens::step(uint32_t node, uint8_t byte) const {
  for (; node != 0; node = nodes_[node].fail) {
    const auto edge = edges_.find(edge_key(node, byte));
    if (edge != edges_.end()) return edge->second;
  }
  return root_[byte];
}

const AddedTokens::Node* AddedTokens::longest_allowed(uint32_t node, size_t begin,
                                                      size_t special_end) const {
  if (nodes_[node].len == 0) node = nodes_[node].shorter;
  for (; node != 0; node = nodes_[node].shorter) {
    const Node& found = nodes_[node];
    if (!found.special || begin + found.len <= special_end) return &found;
  }
  return nullptr;
}

std::vector<AddedMatch> AddedTokens::find(std::string_view text,
                                          std::span<const TextRange> special) const {
  if (nodes_.size() == 1) return {};
  std::vector<AddedMatch> starts;  // the longest token of each position, from right to left
  uint32_t node = 0;
  size_t n_ranges = special.size();  // those that begin at or before the position
  for (size_t i = text.size(); i-- > 0;) {
    node = step(node, static_cast<uint8_t>(text[i]));
    if (node == 0) continue;
    while (n_ranges > 0 && special[n_ranges - 1].begin > i) --n_ranges;
    const size_t special_end = n_ranges == 0 ? 0 : special[n_ranges - 1].end;
    const Node* found = longest_allowed(node, i, special_end);
    if (found != nullptr) starts.push_back({{i, i + found->len}, found->id});
  }
  std::vector<AddedMatch> matches;
  size_t covered = 0;
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) {
    if (start->range.begin < covered) continue;
    covered = start->range.end;
    matches.push_back(*start);
  }
  return matches;
}

}  // namespace pagoda::model
