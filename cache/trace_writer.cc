#include "cache/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/check.h"

namespace pagoda::cache {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;
constexpr size_t kEntryBytes = 256;  // beside its texts and tokens

int64_t bytes_of(const TraceEntry& entry) {
  return static_cast<int64_t>(kEntryBytes + entry.tokens.size() * sizeof(int32_t) +
                              entry.salt.size() + entry.adapter.size() + entry.tenant.size() +
                              entry.session.size());
}

uint64_t beginning_of(const base::Digest256& digest) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(value); ++i) value |= uint64_t{digest[i]} << (8 * i);
  return value;
}

void append_digest(std::string& line, std::string_view name, uint64_t digest) {
  if (digest != 0) fmt::format_to(std::back_inserter(line), ",\"{}\":{}", name, digest);
}

absl::Status errno_status(const std::string& path) {
  return base::status_error(absl::StatusCode::kUnavailable, "{}: {}", path, std::strerror(errno));
}

// A file that ends after a whole line, always.
class TraceFile {
 public:
  TraceFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  ~TraceFile() {
    if (file_ >= 0) ::close(file_);
  }
  TraceFile(TraceFile&& other) noexcept
      : path_(std::move(other.path_)),
        file_(std::exchange(other.file_, -1)),
        is_regular_(other.is_regular_),
        size_(other.size_) {}
  TraceFile& operator=(TraceFile&&) = delete;

  absl::Status begin() {
    struct stat info {};
    if (::fstat(file_, &info) != 0) return errno_status(path_);
    is_regular_ = S_ISREG(info.st_mode);
    if (!is_regular_) return absl::OkStatus();
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      return base::status_error(absl::StatusCode::kFailedPrecondition,
                                "{}: another process is writing to it", path_);
    }
    if (::fstat(file_, &info) != 0) return errno_status(path_);
    size_ = info.st_size;
    return cut_last_line();
  }

  absl::Status append(std::string_view lines) {
    std::string_view rest = lines;
    while (!rest.empty()) {
      const ssize_t n = ::write(file_, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const absl::Status status = errno_status(path_);
        if (is_regular_ && rest.size() != lines.size() && ::ftruncate(file_, size_) != 0) {
          // The reader will name the line.
          return errno_status(path_);
        }
        return status;
      }
      rest.remove_prefix(static_cast<size_t>(n));
    }
    size_ += std::ssize(lines);
    return absl::OkStatus();
  }

 private:
  absl::Status cut_last_line() {
    std::vector<char> chunk(size_t{64} << 10);
    int64_t end = size_;
    while (end > 0) {
      const int64_t begin = std::max<int64_t>(0, end - std::ssize(chunk));
      const ssize_t n = ::pread(file_, chunk.data(), static_cast<size_t>(end - begin), begin);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status(path_);
      if (n == 0) break;
      const std::string_view read(chunk.data(), static_cast<size_t>(n));
      const size_t at = read.rfind('\n');
      if (at != std::string_view::npos) {
        end = begin + static_cast<int64_t>(at) + 1;
        break;
      }
      end = begin;
    }
    if (end != size_ && ::ftruncate(file_, end) != 0) return errno_status(path_);
    size_ = end;
    return absl::OkStatus();
  }

  std::string path_;
  int file_ = -1;
  bool is_regular_ = false;
  int64_t size_ = 0;
};

}  // namespace

base::Digest256 random_trace_key() {
  base::Digest256 key;
  CHECK_EQ(::getentropy(key.data(), key.size()), 0);
  return key;
}

absl::StatusOr<std::unique_ptr<TraceWriter>> TraceWriter::open(const std::string& path,
                                                               const TraceWriterOptions& options) {
  // Not blocking while it is opened: of a pipe nobody reads, that would be for ever.
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return errno_status(path);
  TraceFile trace(path, file);
  RETURN_IF_ERROR(trace.begin());
  return std::make_unique<TraceWriter>(
      options,
      [trace = std::move(trace)](std::string_view lines) mutable { return trace.append(lines); });
}

TraceWriter::TraceWriter(const TraceWriterOptions& options, Append append)
    : options_(options), append_(std::move(append)), queue_(options.n_queued_max) {
  CHECK_GT(options_.block_size, 0);
  thread_ = std::thread([this] { run(); });
}

TraceWriter::~TraceWriter() {
  queue_.close();
  thread_.join();
}

bool TraceWriter::add(TraceEntry entry) {
  CHECK(entry.prompt_len > 0 && static_cast<size_t>(entry.prompt_len) <= entry.tokens.size());
  const int64_t n_bytes = bytes_of(entry);
  const int64_t before = queued_bytes_.fetch_add(n_bytes);
  if (before + n_bytes <= options_.queued_bytes_max && queue_.try_push(entry)) return true;
  queued_bytes_.fetch_sub(n_bytes);
  n_dropped_.fetch_add(1);
  return false;
}

TraceWriterStats TraceWriter::stats() const {
  return {n_written_.load(), n_dropped_.load(), n_failed_.load(), bytes_written_.load()};
}

absl::Status TraceWriter::last_error() const {
  std::lock_guard lock(mutex_);
  return last_error_;
}

void TraceWriter::run() {
  while (std::optional<TraceEntry> entry = queue_.pop()) {
    write_line(*entry);
    queued_bytes_.fetch_sub(bytes_of(*entry));
    if (queue_.size() == 0 || lines_.size() >= kFlushBytes) flush();
  }
  flush();
}

uint64_t TraceWriter::digest_of(std::string_view label, const std::string& text) const {
  if (text.empty()) return 0;
  return beginning_of(
      base::Sha256().update(options_.key).update(std::string(label)).update(text).finish());
}

void TraceWriter::write_line(const TraceEntry& entry) {
  const auto out = std::back_inserter(lines_);
  if (!has_head_ && n_lines_ == 0) {
    fmt::format_to(out,
                   "{{\"pagoda_trace\":1,\"block_size\":{},\"block_bytes\":{},\"start_ms\":{}}}\n",
                   options_.block_size, options_.block_bytes, options_.start_unix_ms);
  }
  const auto prompt_len = static_cast<size_t>(entry.prompt_len);
  const size_t output_len = entry.tokens.size() - prompt_len;
  const int64_t us = std::max<int64_t>(0, entry.arrival_us - options_.start_us);
  fmt::format_to(out, "{{\"t_ms\":{}.{:03},\"prompt_len\":{},\"output_len\":{},\"blocks\":[",
                 us / 1000, us % 1000, prompt_len, output_len);
  // The KV of the last token of an output is never computed.
  const size_t computed_len = entry.tokens.size() - (output_len > 0 ? 1 : 0);
  const auto block_size = static_cast<size_t>(options_.block_size);
  base::Digest256 digest = base::Sha256()
                               .update(options_.key)
                               .update("root")
                               .update_u64(entry.salt.size())
                               .update(entry.salt)
                               .update(entry.adapter)
                               .finish();
  for (size_t at = 0; at + block_size <= computed_len; at += block_size) {
    const std::span<const int32_t> tokens(entry.tokens.data() + at, block_size);
    digest = base::Sha256()
                 .update(options_.key)
                 .update(digest)
                 .update({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()})
                 .finish();
    fmt::format_to(out, "{}{}", at == 0 ? "" : ",", beginning_of(digest));
  }
  lines_ += ']';
  append_digest(lines_, "salt", digest_of("salt", entry.salt));
  append_digest(lines_, "tenant", digest_of("tenant", entry.tenant));
  append_digest(lines_, "session", digest_of("session", entry.session));
  if (entry.priority != 50) {
    fmt::format_to(out, ",\"priority\":{}", std::clamp(entry.priority, 0, 100));
  }
  lines_ += "}\n";
  ++n_lines_;
}

void TraceWriter::flush() {
  if (n_lines_ == 0) return;
  const auto n_bytes = static_cast<int64_t>(lines_.size());
  if (bytes_written_.load() + n_bytes > options_.file_bytes_max) {
    n_dropped_.fetch_add(n_lines_);
  } else if (const absl::Status status = append_(lines_); status.ok()) {
    has_head_ = true;
    n_written_.fetch_add(n_lines_);
    bytes_written_.fetch_add(n_bytes);
  } else {
    n_failed_.fetch_add(n_lines_);
    std::lock_guard lock(mutex_);
    last_error_ = status;
  }
  lines_.clear();
  n_lines_ = 0;
}

}  // namespace pagoda::cache
