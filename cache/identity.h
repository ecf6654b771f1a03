// What a cached block is valid for, and the keys that name blocks outside this process.
//
// Keys are the same in every process and on every machine. They form a SHA-256 chain, so that a key
// stands for all tokens from the first on, and nobody can make two contents share one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/hash.h"
#include "base/ids.h"
#include "kernels/kv_view.h"

namespace pagoda::cache {

// Everything but the tokens that KV depends on.
struct Identity {
  base::Digest256 model{};  // weights, header and rope settings
  DType kv_dtype = DType::kF16;
  PageLayout page_layout = PageLayout::kTokenMajor;
  int32_t block_size = kPageTokens;
  std::string kernel_set;        // kernels differ in their last bits
  int32_t numerics_version = 1;  // of the kernels' arithmetic; a change of it changes every key
  int32_t rank = 0;              // tensor parallel
  int32_t world = 1;

  base::Digest256 digest() const;
};

// Who may share KV with whom: requests of the same salt and adapter. An adapter is named by a
// digest of its weights and its scale, never by its name; empty is the model alone. Sets of
// adapters are written in a canonical order.
struct CacheScope {
  std::string salt;
  std::string adapter;

  bool operator==(const CacheScope&) const = default;
};

// "digest-of-weights*scale+…", sorted, so that the same set in another order is the same adapter.
struct AdapterPart {
  std::string content_digest;
  double scale = 1;
};
std::string canonical_adapter(std::span<const AdapterPart> parts);

using BlockKey = base::Digest256;

// What a salt is known by outside the process: XXH3-128 of it.
base::Digest128 salt_digest(const std::string& salt);

// The parent of a path's first block.
BlockKey root_key(const base::Digest256& identity, GroupId group, const CacheScope& scope);
// tokens: [block_size]
BlockKey block_key(const BlockKey& parent, std::span<const int32_t> tokens);

}  // namespace pagoda::cache
