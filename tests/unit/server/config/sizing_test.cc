#include "server/sizing.h"

#include <gtest/gtest.h>

#include <map>

namespace pagoda {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

ReadFile files(std::map<std::string, std::string> content) {
  return [content = std::move(content)](const std::string& path) -> std::optional<std::string> {
    const auto it = content.find(path);
    if (it == content.end()) return std::nullopt;
    return it->second;
  };
}

TEST(Sizing, WithoutGroupsFreeMemoryCounts) {
  EXPECT_EQ(available_memory(files(
                {{"/proc/meminfo", "MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n"}})),
            2048 * 1024);
  EXPECT_EQ(available_memory(files({})), -1);
}

TEST(Sizing, TheTightestGroupOfV2Counts) {
  const auto read = files({{"/proc/meminfo", "MemAvailable: 16777216 kB\n"},
                           {"/proc/self/cgroup", "0::/a/b\n"},
                           {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
                           {"/sys/fs/cgroup/a/b/memory.current", "5\n"},
                           {"/sys/fs/cgroup/a/memory.max", "4294967296\n"},
                           {"/sys/fs/cgroup/a/memory.current", "3221225472\n"},
                           {"/sys/fs/cgroup/a/memory.stat",
                            "anon 1\nfile 2\ninactive_file 1073741824\nactive_file 3\n"}});
  EXPECT_EQ(available_memory(read), 2 * kGiB);  // 4 - (3 - 1)
}

TEST(Sizing, GroupsOfV1AndTheirRootInAContainer) {
  const auto read = files({{"/proc/meminfo", "MemAvailable: 16777216 kB\n"},
                           {"/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/abc\n0::/\n"},
                           {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"},
                           {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(available_memory(read), kGiB);
  EXPECT_EQ(usable_processors(read, 8), 2);
  EXPECT_EQ(usable_processors(read, 1), 1);
}

TEST(Sizing, AGroupThatIsOverItsLimitLeavesNothing) {
  const auto read = files({{"/proc/meminfo", "MemAvailable: 16777216 kB\n"},
                           {"/sys/fs/cgroup/memory.max", "100\n"},
                           {"/sys/fs/cgroup/memory.current", "200\n"}});
  EXPECT_EQ(available_memory(read), 0);
}

TEST(Sizing, QuotaOfV2) {
  EXPECT_EQ(usable_processors(files({{"/proc/self/cgroup", "0::/a\n"},
                                     {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"},
                                     {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}}),
                              8),
            3);
  EXPECT_EQ(usable_processors(files({{"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                                     {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
                              8),
            8);
}

TEST(Sizing, PoolBlocks) {
  const PoolRequest request{.available_bytes = 16 * kGiB,
                            .block_bytes = 360 << 10,
                            .block_tokens = 16,
                            .n_groups = 1,
                            .max_model_len = 8192,
                            .max_num_seqs = 64};
  EXPECT_EQ(pool_blocks(request), 4 * kGiB / (360 << 10));
  PoolRequest few = request;
  few.max_num_seqs = 2;
  EXPECT_EQ(pool_blocks(few), 2 * 512);
  few.max_model_len = 8193;  // a part of a block is a block
  EXPECT_EQ(pool_blocks(few), 2 * 513);
  few.n_groups = 6;
  EXPECT_EQ(pool_blocks(few), 2 * 513 * 6);
  PoolRequest given = request;
  given.flag_bytes = (360 << 10) * 10 + 1;
  EXPECT_EQ(pool_blocks(given), 10);
  PoolRequest unknown = request;
  unknown.available_bytes = -1;
  EXPECT_EQ(pool_blocks(unknown), 64 * 512);
  PoolRequest nothing = request;
  nothing.available_bytes = 0;
  EXPECT_EQ(pool_blocks(nothing), 0);
}

TEST(Sizing, ReadsTheRealMachine) {
  EXPECT_GT(available_memory(read_system_file), 0);
  EXPECT_GE(usable_processors(read_system_file, affinity_count()), 1);
  EXPECT_FALSE(read_system_file("/no/such/file").has_value());
}

}  // namespace
}  // namespace pagoda
