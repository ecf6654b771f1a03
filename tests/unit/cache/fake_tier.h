// A device and tiers of the tests' own: what a tier is asked goes to a function, which answers when
// it likes. A block is filled with a byte that follows from its key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cache/tier.h"
#include "cache/transfer.h"

namespace pagoda::cache {

inline constexpr int64_t kBlockBytes = 64;

inline BlockKey key_of(int32_t number) {
  BlockKey key{};
  for (size_t i = 0; i < 4; ++i) key[i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

inline int32_t number_of(const BlockKey& key) {
  int32_t number = 0;
  for (size_t i = 0; i < 4; ++i) number |= key[i] << (8 * i);
  return number;
}

inline uint8_t byte_of(const BlockKey& key) { return static_cast<uint8_t>(number_of(key) * 7 + 1); }

inline BlockRecord record_of(int32_t number) {
  BlockRecord record;
  record.key = key_of(number);
  return record;
}

inline std::vector<RestoreBlock> blocks_of(int32_t first, int32_t n,
                                           TierKind from = TierKind::kSsd) {
  std::vector<RestoreBlock> blocks;
  for (int32_t i = first; i < first + n; ++i) blocks.push_back({key_of(i), from, BlockId(i)});
  return blocks;
}

class Device {
 public:
  explicit Device(int32_t n_blocks) : bytes_(static_cast<size_t>(n_blocks * kBlockBytes), 0xEE) {}
  DeviceMemory memory() { return {bytes_.data(), kBlockBytes}; }
  bool is_filled(int32_t block, uint8_t with) {
    const std::span<uint8_t> bytes = memory().block(BlockId(block));
    return std::all_of(bytes.begin(), bytes.end(), [=](uint8_t byte) { return byte == with; });
  }
  void fill(int32_t block, uint8_t with) {
    std::ranges::fill(memory().block(BlockId(block)), with);
  }

 private:
  std::vector<uint8_t> bytes_;
};

// One call of a tier.
struct Call {
  bool is_get = false;
  BlockKey key{};
  std::span<uint8_t> into;
  Tier::Done done;

  void answer(absl::Status status = absl::OkStatus()) {
    if (is_get && status.ok()) std::ranges::fill(into, byte_of(key));
    done(std::move(status));
  }
};

// Hands each call to a function, on the thread that called.
class FakeTier final : public Tier {
 public:
  explicit FakeTier(std::function<void(Call)> on_call) : on_call_(std::move(on_call)) {}
  TierKind kind() const override { return TierKind::kSsd; }
  void put(BlockRecord record, std::span<const uint8_t>, Done done) override {
    on_call_({false, record.key, {}, std::move(done)});
  }
  void get(const BlockKey& key, std::span<uint8_t> into, Done done) override {
    on_call_({true, key, into, std::move(done)});
  }
  void drop(const BlockKey&) override {}
  TierStats stats() const override { return {}; }

 private:
  std::function<void(Call)> on_call_;
};

inline absl::Status failure() { return absl::Status(absl::StatusCode::kDataLoss, "torn"); }
inline absl::Status full() { return absl::Status(absl::StatusCode::kResourceExhausted, "full"); }

}  // namespace pagoda::cache
