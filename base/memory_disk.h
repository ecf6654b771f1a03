// A Disk in memory, for tests and the simulator, that can lose power, tear, rot, fill up and fail.
// What it does is a function of the calls and of crash()'s seed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/disk.h"

namespace pagoda::base {

enum class DiskOp : uint8_t { kRead, kWrite, kSync };

// Any thread may call anything.
class MemoryDisk final : public Disk {
 public:
  // Called before a read, write or sync of a file, without a lock of the disk, on the caller's
  // thread; the offset of a sync is 0.
  using Fail = std::function<absl::Status(DiskOp, const std::string& name, int64_t offset)>;
  using Hook = std::function<void(DiskOp, const std::string& name, int64_t offset)>;

  MemoryDisk();

  absl::StatusOr<std::vector<std::string>> list() override;
  absl::StatusOr<std::shared_ptr<DiskFile>> create(const std::string& name) override;
  absl::StatusOr<std::shared_ptr<DiskFile>> open(const std::string& name) override;
  absl::Status remove(const std::string& name) override;
  absl::Status sync_folder() override;
  absl::StatusOr<int64_t> free_bytes() override;

  // The power fails and is back at once. Files that were open answer kUnavailable from now on.
  //   - Since the last sync_folder() a name came and went through some states: it is in any one of
  //     them, whatever the others are.
  //   - Of what was written to a file since its last sync(), each unit of kDiskAlign is new, or as
  //     it was at that sync, or, seldom, new in front and old behind a border of 512 bytes. Growth
  //     that was not synced may be lost behind the last unit that survived.
  // What survived is durable.
  void crash(uint64_t seed);

  // Faults. The sizes of files that have a name count. A write that goes past the capacity writes
  // what fits and is kResourceExhausted.
  void set_capacity(int64_t bytes);
  // An error of `fail` is that call's answer. Of a write that fails, the first half is written.
  void set_fail(Fail fail);  // nullptr: none
  // For delays, counts and power failures at a certain call: it may call the disk.
  void set_hook(Hook hook);  // nullptr: none
  // Rot, of files that are there: inverts the lowest bit of a byte; cuts the file to n bytes.
  void flip_bit(const std::string& name, int64_t offset);
  void truncate(const std::string& name, int64_t n);

 private:
  struct State;
  class File;
  // Shared with the files that are open, which may outlive the disk.
  const std::shared_ptr<State> state_;
};

}  // namespace pagoda::base
