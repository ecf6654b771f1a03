// Philox4x32-10, the counter-based generator of Salmon et al. 2011 ("Parallel random numbers: as
// easy as 1, 2, 3"): a pure function of key and counter, so a draw can be made again anywhere.
#pragma once

#include <array>
#include <cstdint>

namespace pagoda {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

// The number in [0, 1), with 53 bits, that decides which token choice `choice` of a request takes
// at output position `position`. The third and fourth word of the counter keep the choices apart.
constexpr double draw_uniform(uint64_t seed, int32_t choice, int64_t position) {
  const uint64_t at = static_cast<uint64_t>(position);
  const PhiloxCounter random =
      philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32),
                  static_cast<uint32_t>(choice), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{random[0]} << 32 | random[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace pagoda
