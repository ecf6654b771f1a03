// What the command line does with the folder of an SSD tier that no server has open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/disk.h"
#include "base/hash.h"

namespace pagoda::cache {

struct SsdReport {
  struct Identity {
    base::Digest256 digest{};
    int64_t n_records = 0;
    int64_t data_bytes = 0;  // of blocks
  };
  struct Salt {
    base::Digest128 digest{};
    int64_t n_records = 0;
    int64_t data_bytes = 0;
  };
  int64_t n_segments = 0;
  int64_t n_unfinished = 0;  // segments without a good footer
  int64_t file_bytes = 0;
  int64_t n_records = 0;
  int64_t data_bytes = 0;
  int64_t oldest_s = 0;  // of the records, Unix; 0: there is none
  int64_t newest_s = 0;
  std::vector<Identity> identities;  // by digest
  std::vector<Salt> salts;           // by digest
  std::vector<std::string> faults;   // what is wrong, each names the file
};

// All of these wait for the disk. `folder` is what messages call it. kFailedPrecondition: it is not
// a folder of this tier, or one of another format.

// What footers say; a segment without one is read whole.
absl::StatusOr<SsdReport> inspect_ssd(base::Disk& disk, const std::string& folder);
// Reads every record and counts those whose checksums hold.
absl::StatusOr<SsdReport> verify_ssd(base::Disk& disk, const std::string& folder);
// Removes all segments, and tells how many.
absl::StatusOr<int64_t> purge_ssd(base::Disk& disk, const std::string& folder);

}  // namespace pagoda::cache
