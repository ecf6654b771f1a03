// The folder of the SSD tier: whose it is, and which segments it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/disk.h"

namespace pagoda::cache {

struct SsdFolder {
  std::vector<uint64_t> segments;  // ascending
  uint64_t next_segment = 1;       // a number that was never used here
};

// Makes a new folder ours, and empties one of ours that has another format. kFailedPrecondition: it
// has files of somebody else, and nothing was changed. `folder` is what messages call it.
absl::StatusOr<SsdFolder> open_ssd_folder(base::Disk& disk, const std::string& folder);

// Likewise, but changes nothing: for the command line. A new folder has no segments.
absl::StatusOr<SsdFolder> look_into_ssd_folder(base::Disk& disk, const std::string& folder);

}  // namespace pagoda::cache
