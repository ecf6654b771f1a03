#include "base/fs.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace pagoda::base {
namespace {

absl::Status errno_status(const std::string& path, int error) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  if (error == ENOENT || error == ENOTDIR) code = absl::StatusCode::kNotFound;
  if (error == EACCES || error == EPERM) code = absl::StatusCode::kPermissionDenied;
  return status_error(code, "{}: {}", path, std::strerror(error));
}

absl::Status too_large(const std::string& path, size_t max_bytes) {
  return status_error(absl::StatusCode::kResourceExhausted, "{}: larger than {} bytes", path,
                      max_bytes);
}

struct Fd {
  int fd = -1;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

// Opens a regular file and tells its size.
absl::StatusOr<size_t> open_regular(const std::string& path, Fd& file) {
  // Without O_NONBLOCK the opening of a pipe would wait for a writer.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return errno_status(path, errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return errno_status(path, errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: not a regular file", path);
  return static_cast<size_t>(info.st_size);
}

class PosixMapping final : public MappedFile {
 public:
  PosixMapping(void* base, size_t size) : base_(static_cast<uint8_t*>(base)), size_(size) {}
  ~PosixMapping() override {
    if (size_ > 0) ::munmap(base_, size_);
  }
  std::span<const uint8_t> bytes() const override { return {base_, size_}; }
  void drop(size_t begin, size_t end) const override {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    // Advice only: when it is refused, the pages stay and nothing is wrong.
    if (begin < end && end <= size_) ::madvise(base_ + begin, end - begin, MADV_DONTNEED);
  }

 private:
  uint8_t* base_;
  size_t size_;
};

class MemoryMapping final : public MappedFile {
 public:
  explicit MemoryMapping(std::shared_ptr<const std::vector<uint8_t>> content)
      : content_(std::move(content)) {}
  std::span<const uint8_t> bytes() const override { return *content_; }
  void drop(size_t, size_t) const override {}

 private:
  std::shared_ptr<const std::vector<uint8_t>> content_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> PosixFileSystem::map(const std::string& path) {
  Fd file;
  ASSIGN_OR_RETURN(const size_t size, open_regular(path, file));
  if (size == 0) return std::unique_ptr<MappedFile>(new PosixMapping(nullptr, 0));
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (base == MAP_FAILED) return errno_status(path, errno);
  return std::unique_ptr<MappedFile>(new PosixMapping(base, size));
}

absl::StatusOr<std::string> PosixFileSystem::read(const std::string& path, size_t max_bytes) {
  Fd file;
  ASSIGN_OR_RETURN(const size_t size, open_regular(path, file));
  if (size > max_bytes) return too_large(path, max_bytes);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, text.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

bool PosixFileSystem::exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void MemoryFileSystem::put(const std::string& path, std::vector<uint8_t> bytes) {
  std::lock_guard lock(mutex_);
  files_[path] = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
}

absl::StatusOr<MemoryFileSystem::Content> MemoryFileSystem::find(const std::string& path) {
  std::lock_guard lock(mutex_);
  const auto it = files_.find(path);
  if (it == files_.end()) return errno_status(path, ENOENT);
  return it->second;
}

absl::StatusOr<std::unique_ptr<MappedFile>> MemoryFileSystem::map(const std::string& path) {
  ASSIGN_OR_RETURN(Content content, find(path));
  return std::unique_ptr<MappedFile>(new MemoryMapping(std::move(content)));
}

absl::StatusOr<std::string> MemoryFileSystem::read(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const Content content, find(path));
  if (content->size() > max_bytes) return too_large(path, max_bytes);
  return std::string(content->begin(), content->end());
}

bool MemoryFileSystem::exists(const std::string& path) { return find(path).ok(); }

absl::StatusOr<std::unique_ptr<MappedFile>> FaultyFileSystem::map(const std::string& path) {
  RETURN_IF_ERROR(fault_(path));
  return below_.map(path);
}

absl::StatusOr<std::string> FaultyFileSystem::read(const std::string& path, size_t max_bytes) {
  RETURN_IF_ERROR(fault_(path));
  return below_.read(path, max_bytes);
}

}  // namespace pagoda::base
