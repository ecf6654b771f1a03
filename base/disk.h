// One folder of a disk as something that is passed in, for files that are written in place and must
// survive a crash: the real one, and one in memory that can lose power, tear, rot, fill up and
// fail.
//
// A file's name is durable once sync_folder() has returned, its bytes once sync() has. Until then a
// crash may keep any part of them, in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::base {

// Addresses, offsets and lengths of reads and writes are multiples of it: files are opened past the
// page cache (O_DIRECT) where the file system can.
inline constexpr int64_t kDiskAlign = 4096;

constexpr int64_t disk_align_up(int64_t n) {
  return (n + kDiskAlign - 1) / kDiskAlign * kDiskAlign;
}

// Memory that a disk can read into: aligned to kDiskAlign. Not zeroed.
class DiskBuffer {
 public:
  DiskBuffer() = default;
  explicit DiskBuffer(int64_t bytes);  // rounded up to kDiskAlign
  std::span<uint8_t> span() const { return {data_.get(), static_cast<size_t>(bytes_)}; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const;
  };
  std::unique_ptr<uint8_t, Free> data_;
  int64_t bytes_ = 0;
};

// Any thread; calls on ranges that don't overlap may run at once. The messages of errors name the
// file. kOutOfRange: a read past the end. kResourceExhausted: the disk is full. kUnavailable: the
// disk failed.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  // All of `into`, or an error.
  virtual absl::Status read(int64_t offset, std::span<uint8_t> into) = 0;
  // All of `bytes`, or an error, after which any part of it may have been written. Grows the file.
  virtual absl::Status write(int64_t offset, std::span<const uint8_t> bytes) = 0;
  virtual absl::Status sync() = 0;
  virtual absl::StatusOr<int64_t> size() = 0;
  // For io_uring; -1: there is none, or its reads and writes would go through the page cache, and
  // so could make the thread that submits them wait.
  virtual int descriptor() const = 0;
};

// What a file may be called (CHECKed): no path, and not `lock`, which the folder's owner holds.
bool is_disk_name(const std::string& name);
// CHECKs that a read or write keeps to kDiskAlign.
void check_disk_aligned(int64_t offset, std::span<const uint8_t> bytes);

// Any thread. A file that was opened stays good after remove() until its last owner lets go, also
// when the disk's object is gone. Errors: as for a DiskFile, and kNotFound, kAlreadyExists,
// kPermissionDenied, kInvalidArgument (no regular file).
class Disk {
 public:
  virtual ~Disk() = default;
  virtual absl::StatusOr<std::vector<std::string>> list() = 0;  // names of plain files, sorted
  // Shared: reads and writes under way own the file too.
  virtual absl::StatusOr<std::shared_ptr<DiskFile>> create(const std::string& name) = 0;  // new
  virtual absl::StatusOr<std::shared_ptr<DiskFile>> open(const std::string& name) = 0;
  virtual absl::Status remove(const std::string& name) = 0;
  virtual absl::Status sync_folder() = 0;
  virtual absl::StatusOr<int64_t> free_bytes() = 0;
};

}  // namespace pagoda::base
