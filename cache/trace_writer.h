// `--trace-out FILE`: a line for each request that has ended, written on a thread of its own. The
// format is told in cache/trace.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/hash.h"
#include "base/queue.h"

namespace pagoda::cache {

// A request that has ended.
struct TraceEntry {
  int64_t arrival_us = 0;       // Clock::now_us
  std::vector<int32_t> tokens;  // the prompt's and the output's
  int32_t prompt_len = 0;       // of them; at least 1
  std::string salt;             // of cache::CacheScope
  std::string adapter;
  std::string tenant;   // empty: none
  std::string session;  // empty: none
  int32_t priority = 50;
};

struct TraceWriterOptions {
  int32_t block_size = 16;
  int64_t block_bytes = 0;     // of all groups; 0: unknown
  int64_t start_us = 0;        // Clock::now_us …
  int64_t start_unix_ms = 0;   // … and the time of day then
  base::Digest256 key{};       // random_trace_key()
  size_t n_queued_max = 4096;  // requests
  int64_t queued_bytes_max = int64_t{256} << 20;
  int64_t file_bytes_max = int64_t{16} << 30;  // written by this run
};

struct TraceWriterStats {
  int64_t n_written = 0;
  int64_t n_dropped = 0;  // the queue was full, or the file is
  int64_t n_failed = 0;   // the disk refused them
  int64_t bytes_written = 0;
};

// 32 bytes of the system's entropy.
base::Digest256 random_trace_key();

// Any thread may call. It hashes and writes on its own thread, which lives as long as it does;
// the end of it waits until what was added is written.
class TraceWriter {
 public:
  // Takes whole lines; all of them or none. On the writer's thread.
  using Append = absl::AnyInvocable<absl::Status(std::string_view lines)>;

  // Begins or continues a file; only its owner may read it. What a killed process left behind the
  // last whole line is cut off. Errors name the path; kFailedPrecondition: another process is
  // writing to it.
  static absl::StatusOr<std::unique_ptr<TraceWriter>> open(const std::string& path,
                                                           const TraceWriterOptions& options);
  TraceWriter(const TraceWriterOptions& options, Append append);
  ~TraceWriter();

  // Never waits. False, and counted: the queue was full.
  bool add(TraceEntry entry);
  TraceWriterStats stats() const;
  // Of the disk, the last one; OK: there was none.
  absl::Status last_error() const;

 private:
  void run();
  void write_line(const TraceEntry& entry);
  void flush();
  uint64_t digest_of(std::string_view label, const std::string& text) const;

  const TraceWriterOptions options_;
  Append append_;          // the writer's thread
  std::string lines_;      // the writer's thread
  int64_t n_lines_ = 0;    // in lines_, requests; the writer's thread
  bool has_head_ = false;  // is written; the writer's thread
  base::BoundedQueue<TraceEntry> queue_;
  std::atomic<int64_t> queued_bytes_{0};
  std::atomic<int64_t> n_written_{0};
  std::atomic<int64_t> n_dropped_{0};
  std::atomic<int64_t> n_failed_{0};
  std::atomic<int64_t> bytes_written_{0};
  mutable std::mutex mutex_;
  absl::Status last_error_;  // guarded by mutex_
  std::thread thread_;       // last: it uses all of the above
};

}  // namespace pagoda::cache
