// The two digests of the tree: XXH3-128 for integrity, SHA-256 for keys that must not collide even
// when somebody tries.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pagoda::base {

using Digest128 = std::array<uint8_t, 16>;
using Digest256 = std::array<uint8_t, 32>;

// XXH3-128 (https://github.com/Cyan4973/xxHash), canonical (big-endian) byte order.
Digest128 xxh3_128(std::span<const uint8_t> data);

// SHA-256 (FIPS 180-4), fed piece by piece. One thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& update(std::span<const uint8_t> data);
  Sha256& update(const std::string& text);
  // A number as eight little-endian bytes, so that a digest is the same on every machine.
  Sha256& update_u64(uint64_t value);
  // May be called once.
  Digest256 finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace pagoda::base
