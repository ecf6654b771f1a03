#include "base/posix_disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/blocking.h"
#include "base/check.h"

namespace pagoda::base {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;

absl::Status errno_status(const std::string& path, int error) {
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    code = absl::StatusCode::kResourceExhausted;
  } else if (error == ENOENT) {
    code = absl::StatusCode::kNotFound;
  } else if (error == EEXIST) {
    code = absl::StatusCode::kAlreadyExists;
  } else if (error == EACCES || error == EPERM || error == EROFS) {
    code = absl::StatusCode::kPermissionDenied;
  } else if (error == ENOTDIR || error == EISDIR || error == ELOOP) {
    code = absl::StatusCode::kInvalidArgument;
  }
  return status_error(code, "{}: {}", path, std::strerror(error));
}

// Calls again what a signal interrupted.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A transfer that ended inside a unit of kDiskAlign is continued from that unit's start: past the
// page cache no other place can be addressed.
size_t whole_units(ssize_t bytes) {
  return static_cast<size_t>(bytes) / static_cast<size_t>(kDiskAlign) *
         static_cast<size_t>(kDiskAlign);
}

class PosixFile final : public DiskFile {
 public:
  PosixFile(std::string path, Descriptor file, bool is_direct)
      : path_(std::move(path)), file_(std::move(file)), is_direct_(is_direct) {}

  absl::Status read(int64_t offset, std::span<uint8_t> into) override {
    check_disk_aligned(offset, into);
    note_wait();
    while (!into.empty()) {
      const ssize_t got =
          uninterrupted([&] { return ::pread(file_.get(), into.data(), into.size(), offset); });
      if (got < 0) return errno_status(path_, errno);
      const size_t done = whole_units(got);
      if (done == 0) {
        return status_error(absl::StatusCode::kOutOfRange, "{}: ends before byte {}", path_,
                            offset + static_cast<int64_t>(into.size()));
      }
      into = into.subspan(done);
      offset += static_cast<int64_t>(done);
    }
    return absl::OkStatus();
  }

  absl::Status write(int64_t offset, std::span<const uint8_t> bytes) override {
    check_disk_aligned(offset, bytes);
    note_wait();
    while (!bytes.empty()) {
      const ssize_t put =
          uninterrupted([&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), offset); });
      if (put < 0) return errno_status(path_, errno);
      const size_t done = whole_units(put);
      // Only a disk or a quota that is nearly full takes less than one unit.
      if (done == 0) return errno_status(path_, ENOSPC);
      bytes = bytes.subspan(done);
      offset += static_cast<int64_t>(done);
    }
    return absl::OkStatus();
  }

  // Not tried again: after a failure the kernel may call clean what it has lost.
  absl::Status sync() override {
    note_wait();
    if (::fdatasync(file_.get()) != 0) return errno_status(path_, errno);
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> size() override {
    struct stat info;
    if (::fstat(file_.get(), &info) != 0) return errno_status(path_, errno);
    return static_cast<int64_t>(info.st_size);
  }

  int descriptor() const override { return is_direct_ ? file_.get() : -1; }

 private:
  const std::string path_;
  const Descriptor file_;
  const bool is_direct_;
};

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

PosixDisk::PosixDisk(std::string path, Descriptor folder, Descriptor lock)
    : path_(std::move(path)), folder_(std::move(folder)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<PosixDisk>> PosixDisk::open_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) return errno_status(path, errno);
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return errno_status(path, errno);
  Descriptor lock(::openat(folder.get(), "lock",
                           O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode));
  if (lock.get() < 0) return errno_status(path + "/lock", errno);
  if (uninterrupted([&] { return ::flock(lock.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(path + "/lock", errno);
    return status_error(absl::StatusCode::kFailedPrecondition,
                        "{}: another process is using this folder", path);
  }
  return std::unique_ptr<PosixDisk>(new PosixDisk(path, std::move(folder), std::move(lock)));
}

absl::StatusOr<std::vector<std::string>> PosixDisk::list() {
  note_wait();
  // Opened anew: two lists at once must not share a position.
  const int fd = ::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status(path_, errno);
  const std::unique_ptr<DIR, decltype([](DIR* d) { ::closedir(d); })> folder(::fdopendir(fd));
  if (folder == nullptr) {
    const int error = errno;
    ::close(fd);
    return errno_status(path_, error);
  }
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) {
      if (errno != 0) return errno_status(path_, errno);
      break;
    }
    struct stat info;
    if (!is_disk_name(entry->d_name)) continue;
    if (::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      return errno_status(path_ + "/" + entry->d_name, errno);
    }
    if (S_ISREG(info.st_mode)) names.emplace_back(entry->d_name);
  }
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<std::shared_ptr<DiskFile>> PosixDisk::open_with(const std::string& name, int flags) {
  CHECK(is_disk_name(name));
  note_wait();
  const std::string path = path_ + "/" + name;
  // Without O_NONBLOCK the opening of a pipe could wait.
  Descriptor file(::openat(folder_.get(), name.c_str(),
                           O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, kFileMode));
  if (file.get() < 0) return errno_status(path, errno);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return errno_status(path, errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: not a regular file", path);
  // Asked for afterwards: an open() that refuses O_DIRECT may have made the file already. Both
  // calls take O_NONBLOCK away, under which io_uring would answer EAGAIN.
  const bool is_direct = ::fcntl(file.get(), F_SETFL, O_DIRECT) == 0;
  if (!is_direct && ::fcntl(file.get(), F_SETFL, 0) != 0) return errno_status(path, errno);
  return std::make_shared<PosixFile>(path, std::move(file), is_direct);
}

absl::StatusOr<std::shared_ptr<DiskFile>> PosixDisk::create(const std::string& name) {
  return open_with(name, O_CREAT | O_EXCL);
}

absl::StatusOr<std::shared_ptr<DiskFile>> PosixDisk::open(const std::string& name) {
  return open_with(name, 0);
}

absl::Status PosixDisk::remove(const std::string& name) {
  CHECK(is_disk_name(name));
  note_wait();
  if (::unlinkat(folder_.get(), name.c_str(), 0) != 0) {
    return errno_status(path_ + "/" + name, errno);
  }
  return absl::OkStatus();
}

absl::Status PosixDisk::sync_folder() {
  note_wait();
  if (::fsync(folder_.get()) != 0) return errno_status(path_, errno);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PosixDisk::free_bytes() {
  struct statvfs info;
  if (uninterrupted([&] { return ::fstatvfs(folder_.get(), &info); }) != 0) {
    return errno_status(path_, errno);
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace pagoda::base
