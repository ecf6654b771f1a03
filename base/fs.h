// Files as something that is passed in: the real ones, ones in memory for tests, and ones that fail
// on purpose.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::base {

// The whole content of a file, read only, at an address that stays until the object dies. The
// content is the file's own pages where the file system can map them.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const uint8_t> bytes() const = 0;
  // The reader is done with bytes [begin, end): their memory may be given back. A later read is
  // still right, only slower.
  virtual void drop(size_t begin, size_t end) const = 0;
};

// Any thread may call. Errors: kNotFound, kPermissionDenied, kInvalidArgument (a directory),
// kUnavailable (the disk failed); each message names the path.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual absl::StatusOr<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;
  // Small files (configuration, keys, templates); kResourceExhausted above max_bytes.
  virtual absl::StatusOr<std::string> read(const std::string& path, size_t max_bytes) = 0;
  virtual bool exists(const std::string& path) = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  absl::StatusOr<std::string> read(const std::string& path, size_t max_bytes) override;
  bool exists(const std::string& path) override;
};

class MemoryFileSystem final : public FileSystem {
 public:
  void put(const std::string& path, std::vector<uint8_t> bytes);
  absl::StatusOr<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  absl::StatusOr<std::string> read(const std::string& path, size_t max_bytes) override;
  bool exists(const std::string& path) override;

 private:
  // Shared: a mapping outlives a later put, as a mapped file outlives an unlink.
  using Content = std::shared_ptr<const std::vector<uint8_t>>;
  absl::StatusOr<Content> find(const std::string& path);

  std::mutex mutex_;
  std::map<std::string, Content> files_;
};

// Passes calls on to another file system unless `fault(path)` answers with an error.
class FaultyFileSystem final : public FileSystem {
 public:
  using Fault = std::function<absl::Status(const std::string& path)>;
  FaultyFileSystem(FileSystem& below, Fault fault) : below_(below), fault_(std::move(fault)) {}
  absl::StatusOr<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  absl::StatusOr<std::string> read(const std::string& path, size_t max_bytes) override;
  bool exists(const std::string& path) override { return below_.exists(path); }

 private:
  FileSystem& below_;
  Fault fault_;
};

}  // namespace pagoda::base
