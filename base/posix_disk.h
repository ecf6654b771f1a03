// A real folder as a Disk, owned by one process at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/disk.h"

namespace pagoda::base {

// A file or folder of the system, closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Files are readable by their user alone, and are read and written past the page cache where the
// file system can.
class PosixDisk final : public Disk {
 public:
  // Makes the folder when it is missing, though not the folders above it. kFailedPrecondition:
  // another owner holds it. It is held until this object dies.
  static absl::StatusOr<std::unique_ptr<PosixDisk>> open_folder(const std::string& path);

  absl::StatusOr<std::vector<std::string>> list() override;
  absl::StatusOr<std::shared_ptr<DiskFile>> create(const std::string& name) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> open(const std::string& name) override;
  absl::Status remove(const std::string& name) override;
  absl::Status sync_folder() override;
  absl::StatusOr<int64_t> free_bytes() override;

 private:
  PosixDisk(std::string path, Descriptor folder, Descriptor lock);
  absl::StatusOr<std::shared_ptr<DiskFile>> open_with(const std::string& name, int flags);

  const std::string path_;
  const Descriptor folder_;
  const Descriptor lock_;
};

}  // namespace pagoda::base
