#include "cache/identity.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace pagoda::cache {
namespace {

std::vector<int32_t> counting(int32_t n) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(i);
  return tokens;
}

// Written down: a key must be the same in every process and every release of this numerics version.
TEST(BlockKey, IsTheSameInEveryProcess) {
  const Identity identity;
  const std::vector<int32_t> tokens = counting(32);
  const BlockKey first =
      block_key(root_key(identity.digest(), GroupId(0), {}), std::span(tokens).first(16));
  const BlockKey second = block_key(first, std::span(tokens).subspan(16));
  EXPECT_EQ(base::to_hex(first),
            "7b21b33abeea6fdade9834f9ea1bf94d948ce10f4c3a78f47176f7201f2acc3f");
  EXPECT_EQ(base::to_hex(second),
            "0daad62ee78f3ce6f34fe950acd62bb2ef17b74c2271a4c4a6e011212188eafb");
}

TEST(BlockKey, IsChained) {
  std::vector<int32_t> tokens = counting(32);
  const BlockKey root = root_key(Identity{}.digest(), GroupId(0), {});
  const auto second_key = [&] {
    return block_key(block_key(root, std::span(tokens).first(16)), std::span(tokens).subspan(16));
  };
  const BlockKey before = second_key();
  tokens[0] = 99;
  EXPECT_NE(before, second_key());
}

TEST(BlockKey, DependsOnEverythingThatKvDependsOn) {
  std::vector<Identity> identities(8);
  identities[1].model[0] = 1;
  identities[2].kv_dtype = DType::kF32;
  identities[3].page_layout = PageLayout::kKTransposed;
  identities[4].block_size = 32;
  identities[5].kernel_set = "avx2";
  identities[6].numerics_version = 2;
  identities[7].world = 2;
  std::set<BlockKey> keys;
  for (const Identity& identity : identities) {
    keys.insert(root_key(identity.digest(), GroupId(0), {}));
  }
  keys.insert(root_key(Identity{}.digest(), GroupId(1), {}));
  keys.insert(root_key(Identity{}.digest(), GroupId(0), {.salt = "s", .adapter = ""}));
  keys.insert(root_key(Identity{}.digest(), GroupId(0), {.salt = "", .adapter = "s"}));
  EXPECT_EQ(keys.size(), identities.size() + 3);
}

TEST(CanonicalAdapter, IsContentAndScaleInAnyOrder) {
  const std::vector<AdapterPart> none;
  const std::vector<AdapterPart> off = {{"aa", 0.0}};
  const std::vector<AdapterPart> a = {{"aa", 1.0}};
  const std::vector<AdapterPart> b = {{"bb", 1.0}};
  const std::vector<AdapterPart> half_a = {{"aa", 0.5}};
  const std::vector<AdapterPart> both = {{"aa", 1.0}, {"bb", 0.5}};
  const std::vector<AdapterPart> both_turned = {{"bb", 0.5}, {"aa", 1.0}};
  EXPECT_EQ(canonical_adapter(none), "");
  EXPECT_EQ(canonical_adapter(off), "");
  const std::set<std::string> different = {canonical_adapter(a), canonical_adapter(b),
                                           canonical_adapter(half_a), canonical_adapter(both)};
  EXPECT_EQ(different.size(), 4U);
  EXPECT_EQ(canonical_adapter(both), canonical_adapter(both_turned));
}

}  // namespace
}  // namespace pagoda::cache
