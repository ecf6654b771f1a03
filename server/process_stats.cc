#include "server/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/sizing.h"

namespace pagoda {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

void add(std::vector<MetricFamily>& families, const char* name, const char* help, MetricType type,
         double value) {
  prometheus::ClientMetric metric;
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  families.push_back({std::string("process_") + name, help, type, {std::move(metric)}});
}

// The space-separated field `index` of `text`, as a number.
std::optional<int64_t> field(std::string_view text, int index) {
  for (; index > 0; --index) {
    const size_t blank = text.find(' ');
    if (blank == text.npos) return std::nullopt;
    text.remove_prefix(blank + 1);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Newer kernels say the number of entries as the directory's size.
int64_t open_descriptors() {
  struct stat info {};
  if (::stat("/proc/self/fd", &info) == 0 && info.st_size > 0) return info.st_size;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), ::closedir);
  if (directory == nullptr) return -1;
  int64_t n = -3;  // ".", ".." and the directory itself
  while (::readdir(directory.get()) != nullptr) ++n;
  return n;
}

}  // namespace

ProcessStats::ProcessStats()
    : start_s_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

std::vector<MetricFamily> ProcessStats::Collect() const {
  std::vector<MetricFamily> families;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    add(families, "cpu_seconds_total", "User and system time", MetricType::Counter,
        seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (const auto statm = read_system_file("/proc/self/statm"); statm.has_value()) {
    if (const auto pages = field(*statm, 0)) {
      add(families, "virtual_memory_bytes", "Address space", MetricType::Gauge,
          static_cast<double>(*pages) * page);
    }
    if (const auto pages = field(*statm, 1)) {
      add(families, "resident_memory_bytes", "Memory held", MetricType::Gauge,
          static_cast<double>(*pages) * page);
    }
  }
  if (const int64_t n = open_descriptors(); n >= 0) {
    add(families, "open_fds", "Open descriptors", MetricType::Gauge, static_cast<double>(n));
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    add(families, "max_fds", "Most descriptors that may be open", MetricType::Gauge,
        static_cast<double>(limit.rlim_cur));
  }
  add(families, "start_time_seconds", "Start, in seconds since 1970", MetricType::Gauge, start_s_);
  return families;
}

}  // namespace pagoda
