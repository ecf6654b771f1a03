// Blocks, keys and options for tests of the SSD tier, each told apart from all others by its id.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cache/ssd_format.h"
#include "cache/ssd_tier.h"

namespace pagoda::cache {

inline constexpr int32_t kTestTokens = 16;
inline constexpr int64_t kTestBlockBytes = 6000;                         // two units
inline constexpr int64_t kTestRecordBytes = 3 * base::kDiskAlign;        // with its header
inline constexpr int64_t kTestSegmentBytes = 10 * 3 * base::kDiskAlign;  // nine blocks and the rest

inline BlockKey test_key(int32_t id) {
  BlockKey key{};
  std::memcpy(key.data(), &id, sizeof id);
  key[31] = 0x77;
  return key;
}

inline base::Digest128 test_salt(int32_t id) {
  base::Digest128 salt{};
  std::memcpy(salt.data(), &id, sizeof id);
  return salt;
}

// Tokens that are nobody else's, so that a test can look for them on the disk.
inline int32_t test_token(int32_t id, int32_t i) { return 0x51000000 + id * 256 + i; }

inline BlockRecord test_record(int32_t id, int32_t parent = -1, int32_t salt = 0) {
  BlockRecord record;
  record.key = test_key(id);
  record.parent = test_key(parent);
  record.salt = test_salt(salt);
  record.group = GroupId(2);
  record.priority = 50;
  for (int32_t i = 0; i < kTestTokens; ++i) record.tokens.push_back(test_token(id, i));
  return record;
}

// No byte of it is the first one of a token.
inline std::vector<uint8_t> test_block(int32_t id) {
  std::mt19937 random(static_cast<uint32_t>(id));
  std::vector<uint8_t> block(static_cast<size_t>(kTestBlockBytes));
  for (uint8_t& byte : block) byte = static_cast<uint8_t>(random() % 0x51);
  return block;
}

inline SsdTierOptions test_options() {
  SsdTierOptions options;
  options.folder = "/kv";
  options.capacity_bytes = 8 * kTestSegmentBytes;
  options.daily_bytes = int64_t{1} << 40;
  options.reserve_bytes = 0;
  options.segment_bytes = kTestSegmentBytes;
  options.block_bytes = kTestBlockBytes;
  options.block_size = kTestTokens;
  options.identity[0] = 1;
  options.sleep = [](int64_t) {};
  return options;
}

}  // namespace pagoda::cache
