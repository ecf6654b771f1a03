#include "cache/identity.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace pagoda::cache {
namespace {

// Length first, so that no two lists of texts read alike.
void add_text(base::Sha256& hash, const std::string& text) {
  hash.update_u64(text.size()).update(text);
}

}  // namespace

base::Digest256 Identity::digest() const {
  base::Sha256 hash;
  add_text(hash, "pagoda kv identity 1");
  hash.update(model);
  hash.update_u64(static_cast<uint64_t>(kv_dtype));
  hash.update_u64(static_cast<uint64_t>(page_layout));
  hash.update_u64(static_cast<uint64_t>(block_size));
  add_text(hash, kernel_set);
  hash.update_u64(static_cast<uint64_t>(numerics_version));
  hash.update_u64(static_cast<uint64_t>(rank));
  hash.update_u64(static_cast<uint64_t>(world));
  return hash.finish();
}

std::string canonical_adapter(std::span<const AdapterPart> parts) {
  std::vector<std::string> texts;
  for (const AdapterPart& part : parts) {
    if (part.scale == 0) continue;  // the model alone
    texts.push_back(
        fmt::format("{}*{:016x}", part.content_digest, std::bit_cast<uint64_t>(part.scale)));
  }
  std::sort(texts.begin(), texts.end());
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "+") + text;
  return all;
}

base::Digest128 salt_digest(const std::string& salt) {
  return base::xxh3_128({reinterpret_cast<const uint8_t*>(salt.data()), salt.size()});
}

BlockKey root_key(const base::Digest256& identity, GroupId group, const CacheScope& scope) {
  base::Sha256 hash;
  add_text(hash, "pagoda kv root 1");
  hash.update(identity);
  hash.update_u64(static_cast<uint64_t>(group.value()));
  add_text(hash, scope.salt);
  add_text(hash, scope.adapter);
  return hash.finish();
}

BlockKey block_key(const BlockKey& parent, std::span<const int32_t> tokens) {
  base::Sha256 hash;
  hash.update(parent);
  static_assert(std::endian::native == std::endian::little);
  hash.update({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
  return hash.finish();
}

}  // namespace pagoda::cache
