#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "base/check.h"

namespace pagoda::base {

Digest128 xxh3_128(std::span<const uint8_t> data) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data.data(), data.size()));
  Digest128 digest;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
  return digest;
}

struct Sha256::Context {
  EVP_MD_CTX* md = nullptr;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // Fetched once: EVP_sha256() would be looked up anew each time.
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  CHECK(kAlgorithm != nullptr);
  context_->md = EVP_MD_CTX_new();
  CHECK(context_->md != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(context_->md, kAlgorithm, nullptr), 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_->md); }

Sha256& Sha256::update(std::span<const uint8_t> data) {
  CHECK_EQ(EVP_DigestUpdate(context_->md, data.data(), data.size()), 1);
  return *this;
}

Sha256& Sha256::update(const std::string& text) {
  return update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Sha256& Sha256::update_u64(uint64_t value) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  return update(bytes);
}

Digest256 Sha256::finish() {
  Digest256 digest;
  unsigned int size = 0;
  CHECK_EQ(EVP_DigestFinal_ex(context_->md, digest.data(), &size), 1);
  CHECK_EQ(size, digest.size());
  return digest;
}

std::string to_hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace pagoda::base
