// Drives a radix tree by bytes beside a map that does the same the slow way, and dies where they
// differ. For the fuzzer, and for tests with random bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/radix_tree.h"

namespace pagoda::cache {

class RadixModel {
 public:
  explicit RadixModel(std::span<const uint8_t> bytes) : bytes_(bytes), tree_(kBlock, 1, {}) {
    tree_.on_gone([this](const BlockKey& key) { gone_.push_back(key); });
  }

  void run() {
    while (!bytes_.empty()) {
      step();
      tree_.check();
      check_match();
    }
    for (const Locked& lock : locks_) tree_.unlock(lock.end);
    tree_.check();
  }

 private:
  static constexpr int32_t kBlock = 2;
  using Path = std::vector<int32_t>;  // tokens of whole blocks
  struct Entry {
    int32_t block = -1;  // on the device
    bool host = false;
    bool ssd = false;
    int32_t n_locks = 0;
  };
  struct Locked {
    NodeId end;
    Path path;
  };

  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  // Few tokens, so that paths meet.
  Path some_path() {
    const uint8_t shape = next();
    const uint8_t bits = next();
    Path path(static_cast<size_t>(kBlock) * (1 + shape % 6));
    for (size_t i = 0; i < path.size(); ++i) path[i] = (bits >> (i % 8)) & 1;
    return path;
  }

  static Path parent_of(const Path& path) { return {path.begin(), path.end() - kBlock}; }
  static bool is_below(const Path& path, const Path& above) {
    return path.size() >= above.size() && std::equal(above.begin(), above.end(), path.begin());
  }
  static BlockKey key_of(const Path& path) {
    BlockKey key = root_key({}, GroupId(0), {});
    for (size_t i = 0; i < path.size(); i += kBlock) {
      key = block_key(key, std::span(path).subspan(i, kBlock));
    }
    return key;
  }
  bool has_root() const { return !map_.empty() || !locks_.empty(); }
  bool knows(const Path& path) const { return path.empty() ? has_root() : map_.contains(path); }
  template <typename Test>
  bool has_child_with(const Path& path, Test test) const {
    return std::ranges::any_of(map_, [&](const auto& each) {
      return each.first.size() == path.size() + kBlock && is_below(each.first, path) &&
             test(each.second);
    });
  }

  // Whatever lies nowhere and has nothing below it goes.
  void trim() {
    for (bool more = true; more;) {
      more = false;
      for (auto it = map_.begin(); it != map_.end(); ++it) {
        const Entry& entry = it->second;
        if (entry.block >= 0 || entry.host || entry.ssd) continue;
        if (has_child_with(it->first, [](const Entry&) { return true; })) continue;
        map_.erase(it);
        more = true;
        break;
      }
    }
  }

  // Found records whose parents have come.
  void adopt() {
    for (bool more = true; more;) {
      more = false;
      for (auto it = orphans_.begin(); it != orphans_.end(); ++it) {
        if (!knows(parent_of(*it))) continue;
        map_[*it].ssd = true;
        orphans_.erase(it);
        more = true;
        break;
      }
    }
  }

  void step() {
    switch (next() % 11) {
      case 0:
      case 1:
        return insert();
      case 2:
        return unlock();
      case 3:
        return evict();
      case 4:
        return add_host();
      case 5:
        return add_ssd();
      case 6:
        return remove(next() % 2 == 0 ? TierKind::kHost : TierKind::kSsd);
      case 7:
        return evict_host();
      case 8:
        return find();
      case 9:
        return drop_salt();
      default:
        return drop();
    }
  }

  void insert() {
    const Path path = some_path();
    const bool stays = next() % 2 == 0;
    std::vector<std::vector<BlockId>> tables(1);
    const auto n = static_cast<int32_t>(path.size()) / kBlock;
    const NodeId end = tree_.lock({}, path, n, tables);
    locks_.push_back({});  // the root is there from now on
    const auto have = static_cast<int32_t>(tables[0].size());
    for (int32_t i = have; i < n; ++i) tables[0].push_back(BlockId(n_blocks_++));
    std::vector<BlockId> twins;
    const NodeId node = tree_.insert(
        end, std::span(path).subspan(static_cast<size_t>(have * kBlock)), have, tables, twins);
    CHECK(twins.empty());
    adopt();
    for (int32_t i = 0; i < n; ++i) {
      Entry& entry = map_[Path(path.begin(), path.begin() + (i + 1) * kBlock)];
      if (i < have) CHECK_EQ(entry.block, tables[0][static_cast<size_t>(i)].value());
      if (i >= have) CHECK_EQ(entry.block, -1);
      entry.block = tables[0][static_cast<size_t>(i)].value();
      ++entry.n_locks;
      adopt();
    }
    locks_.back() = {node, path};
    if (!stays) release(locks_.size() - 1);
  }

  void release(size_t index) {
    const Locked lock = locks_[index];
    for (size_t i = kBlock; i <= lock.path.size(); i += kBlock) {
      --map_.at(Path(lock.path.begin(), lock.path.begin() + static_cast<std::ptrdiff_t>(i)))
            .n_locks;
    }
    tree_.unlock(lock.end);
    locks_.erase(locks_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void unlock() {
    if (!locks_.empty()) release(next() % locks_.size());
  }

  void evict() {
    std::vector<BlockId> freed;
    const bool any = std::ranges::any_of(
        map_, [](const auto& e) { return e.second.block >= 0 && e.second.n_locks == 0; });
    CHECK_EQ(tree_.evict_one(freed), any);
    if (!any) return;
    CHECK_EQ(freed.size(), size_t{1});
    take_off_device(freed[0].value());
    trim();
  }

  void take_off_device(int32_t block) {
    for (auto& [path, entry] : map_) {
      if (entry.block != block) continue;
      CHECK_EQ(entry.n_locks, 0);
      CHECK(!has_child_with(path, [](const Entry& e) { return e.block >= 0; }));
      entry.block = -1;
      return;
    }
    CHECK(false);  // nobody has it
  }

  void add_host() {
    const Path path = some_path();
    const Path above = parent_of(path);
    const bool may = map_.contains(path) && (above.empty() || map_.at(above).host);
    CHECK_EQ(tree_.add_copy(TierKind::kHost, key_of(path)), may);
    if (may) map_.at(path).host = true;
  }

  void add_ssd() {
    const Path path = some_path();
    CHECK_EQ(tree_.add_copy(TierKind::kSsd, key_of(path)), map_.contains(path));
    if (map_.contains(path)) map_.at(path).ssd = true;
  }

  void remove(TierKind tier) {
    const Path path = some_path();
    std::vector<BlockKey> dropped;
    tree_.remove_copy(tier, key_of(path), dropped);
    if (!map_.contains(path)) {
      std::erase(orphans_, path);
      return;
    }
    if (tier == TierKind::kSsd) {
      map_.at(path).ssd = false;
    } else {
      size_t n = 0;
      for (auto& [other, entry] : map_) {
        if (!entry.host || !is_below(other, path)) continue;
        entry.host = false;
        ++n;
        CHECK(std::ranges::find(dropped, key_of(other)) != dropped.end());
      }
      CHECK_EQ(n, dropped.size());
    }
    trim();
  }

  void evict_host() {
    std::vector<BlockKey> dropped;
    const bool any = std::ranges::any_of(map_, [](const auto& e) { return e.second.host; });
    CHECK_EQ(tree_.evict_host(dropped), any);
    if (!any) return;
    CHECK_EQ(dropped.size(), size_t{1});
    for (auto& [path, entry] : map_) {
      if (key_of(path) != dropped[0]) continue;
      CHECK(entry.host);
      CHECK(!has_child_with(path, [](const Entry& e) { return e.host; }));
      entry.host = false;
    }
    trim();
  }

  void find() {
    const Path path = some_path();
    BlockRecord record;
    record.parent = key_of(parent_of(path));
    record.key = key_of(path);
    record.salt = salt_digest("");
    record.tokens.assign(path.end() - kBlock, path.end());
    if (next() % 8 == 0) {
      ++record.tokens[0];  // a record that names what it is not
      return tree_.add_found(record);
    }
    tree_.add_found(record);
    if (map_.contains(path)) {
      map_.at(path).ssd = true;
    } else if (std::ranges::find(orphans_, path) == orphans_.end()) {
      orphans_.push_back(path);
      adopt();
    }
    CHECK_EQ(tree_.n_waiting_for_parents(), orphans_.size());
  }

  void drop() {
    const Path path = some_path();
    RadixTree::Dropped dropped;
    tree_.drop_path({}, path, dropped);
    for (const BlockId block : dropped.blocks) {
      for (auto& [other, entry] : map_) {
        if (entry.block != block.value()) continue;
        CHECK_EQ(entry.n_locks, 0);
        CHECK(is_below(path, other));
        entry.block = -1;
      }
    }
    for (auto& [other, entry] : map_) {
      const BlockKey key = key_of(other);
      const bool was_host = std::ranges::find(dropped.host, key) != dropped.host.end();
      const bool was_ssd = std::ranges::find(dropped.ssd, key) != dropped.ssd.end();
      CHECK(!was_host || std::exchange(entry.host, false));
      CHECK(!was_ssd || std::exchange(entry.ssd, false));
    }
    trim();
    // What was only this path's has gone.
    if (map_.contains(path)) {
      const Entry& entry = map_.at(path);
      CHECK(entry.n_locks > 0 || has_child_with(path, [](const Entry&) { return true; }));
    }
  }

  // Everything here has the same one.
  void drop_salt() {
    RadixTree::Dropped dropped;
    CHECK_EQ(tree_.drop_salt("", dropped), locks_.empty());
    size_t n_blocks = 0;
    size_t n_host = 0;
    size_t n_ssd = 0;
    for (auto& [path, entry] : map_) {
      if (std::exchange(entry.host, false)) ++n_host;
      if (std::exchange(entry.ssd, false)) ++n_ssd;
      if (entry.n_locks == 0 && std::exchange(entry.block, -1) >= 0) ++n_blocks;
    }
    CHECK_EQ(dropped.blocks.size(), n_blocks);
    CHECK_EQ(dropped.host.size(), n_host);
    CHECK_EQ(dropped.ssd.size(), n_ssd);
    orphans_.clear();
    trim();
    CHECK_EQ(tree_.n_waiting_for_parents(), size_t{0});
  }

  void check_match() {
    for (const int bits : {0x00, 0xff, 0x0f, 0x35}) {
      Path path(12);
      for (size_t i = 0; i < path.size(); ++i) path[i] = (bits >> (i % 8)) & 1;
      TreeMatch want;
      bool on_device = true;
      for (size_t i = kBlock; i <= path.size(); i += kBlock) {
        const auto it =
            map_.find(Path(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i)));
        if (it == map_.end()) break;
        on_device &= it->second.block >= 0;
        if (on_device) {
          ++want.n_matched;
        } else if (it->second.host) {
          ++want.n_host;
        } else if (it->second.ssd) {
          ++want.n_ssd;
        } else {
          break;
        }
      }
      const TreeMatch got = tree_.match({}, path, 6);
      CHECK_EQ(got.n_matched, want.n_matched);
      CHECK_EQ(got.n_host, want.n_host);
      CHECK_EQ(got.n_ssd, want.n_ssd);
      CHECK_EQ(tree_.below({}, path, got.n_matched, got.n_matched + got.n_below()).size(),
               static_cast<size_t>(got.n_below()));
    }
  }

  std::span<const uint8_t> bytes_;
  RadixTree tree_;
  std::map<Path, Entry> map_;
  std::vector<Path> orphans_;
  std::vector<Locked> locks_;
  std::vector<BlockKey> gone_;
  int32_t n_blocks_ = 0;
};

}  // namespace pagoda::cache
