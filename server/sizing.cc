#include "server/sizing.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <vector>

namespace pagoda {
namespace {

constexpr int64_t kNone = -1;
constexpr size_t kMaxFileBytes = 1 << 20;

// The number that text begins with; kNone for "max" and the like.
int64_t number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : kNone;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// The number after "key" and blanks, on a line of its own.
int64_t value_of(std::string_view text, std::string_view key) {
  for (std::string_view line : lines(text)) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.empty() || (line.front() != ' ' && line.front() != ':')) continue;
    const size_t begin = line.find_first_of("0123456789");
    if (begin != line.npos) return number(line.substr(begin));
  }
  return kNone;
}

int64_t file_number(const ReadFile& read, const std::string& path) {
  const auto text = read(path);
  return text.has_value() ? number(*text) : kNone;
}

int64_t smaller_known(int64_t a, int64_t b) {
  if (a < 0) return b;
  if (b < 0) return a;
  return std::min(a, b);
}

// Whether a list such as "cpu,cpuacct" has the name.
bool has_name(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == name) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

// Folders of the process's control group and of all above it, for a controller of v1 or, with an
// empty name, for v2. In a container the path may not exist below the mount; its root does.
std::vector<std::string> group_folders(const ReadFile& read, std::string_view controller) {
  const std::string mount =
      controller.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + std::string(controller);
  std::vector<std::string> folders;
  const auto groups = read("/proc/self/cgroup");
  std::string path;
  for (const std::string_view line : lines(groups ? std::string_view(*groups) : "")) {
    // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string_view names = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : has_name(names, controller)) {
      path = line.substr(second + 1);
    }
  }
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

int64_t left_of_groups(const ReadFile& read) {
  int64_t left = kNone;
  const auto consider = [&](const std::string& folder, const char* limit_file,
                            const char* used_file, const char* cache_key) {
    const int64_t limit = file_number(read, folder + limit_file);
    const int64_t used = file_number(read, folder + used_file);
    if (limit < 0 || used < 0) return;
    const auto stat = read(folder + "/memory.stat");
    const int64_t cache = stat ? std::max<int64_t>(value_of(*stat, cache_key), 0) : 0;
    left = smaller_known(left, std::max<int64_t>(limit - (used - std::min(cache, used)), 0));
  };
  for (const std::string& folder : group_folders(read, "")) {
    consider(folder, "/memory.max", "/memory.current", "inactive_file");
  }
  for (const std::string& folder : group_folders(read, "memory")) {
    consider(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
  }
  return left;
}

// Processors of a quota, rounded up; kNone without one.
int64_t processors_of(int64_t quota, int64_t period) {
  return quota <= 0 || period <= 0 ? kNone : (quota + period - 1) / period;
}

}  // namespace

std::optional<std::string> read_system_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while (text.size() < kMaxFileBytes && (got = ::read(fd, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(fd);
  if (got < 0) return std::nullopt;
  return text;
}

int64_t available_memory(const ReadFile& read) {
  int64_t available = kNone;
  if (const auto info = read("/proc/meminfo"); info.has_value()) {
    const int64_t kilobytes = value_of(*info, "MemAvailable");
    if (kilobytes >= 0) available = kilobytes * 1024;
  }
  return smaller_known(available, left_of_groups(read));
}

int32_t usable_processors(const ReadFile& read, int32_t n_affinity) {
  int64_t allowed = kNone;
  for (const std::string& folder : group_folders(read, "")) {
    const auto text = read(folder + "/cpu.max");  // "quota period" or "max period"
    if (!text.has_value()) continue;
    const size_t blank = text->find(' ');
    if (blank == std::string::npos) continue;
    allowed = smaller_known(
        allowed, processors_of(number(*text), number(std::string_view(*text).substr(blank + 1))));
  }
  for (const std::string& folder : group_folders(read, "cpu")) {
    allowed =
        smaller_known(allowed, processors_of(file_number(read, folder + "/cpu.cfs_quota_us"),
                                             file_number(read, folder + "/cpu.cfs_period_us")));
  }
  return static_cast<int32_t>(std::max<int64_t>(smaller_known(allowed, n_affinity), 1));
}

int32_t affinity_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

int64_t pool_blocks(const PoolRequest& request) {
  // Positions in the pool are int32 as well.
  const int64_t most = std::numeric_limits<int32_t>::max() / request.block_tokens;
  if (request.flag_bytes > 0) return std::min(request.flag_bytes / request.block_bytes, most);
  const int64_t per_sequence =
      (request.max_model_len + request.block_tokens - 1) / request.block_tokens * request.n_groups;
  int64_t blocks = std::min(per_sequence * request.max_num_seqs, most);
  if (request.available_bytes >= 0) {
    blocks = std::min(blocks, request.available_bytes / 4 / request.block_bytes);
  }
  return blocks;
}

}  // namespace pagoda
