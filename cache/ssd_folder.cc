#include "cache/ssd_folder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "cache/ssd_format.h"

namespace pagoda::cache {
namespace {

struct Listing {
  SsdFolder folder;
  bool has_format = false;
  std::string stranger;  // a file that is not of the tier's making; empty: there is none
};

absl::StatusOr<Listing> list_folder(base::Disk& disk) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, disk.list());
  Listing listing;
  for (const std::string& name : names) {
    if (name == "lock") continue;
    if (name == kSsdFormatFile) {
      listing.has_format = true;
    } else if (const std::optional<uint64_t> number = parse_segment_name(name)) {
      listing.folder.segments.push_back(*number);
    } else if (listing.stranger.empty()) {
      listing.stranger = name;
    }
  }
  std::ranges::sort(listing.folder.segments);
  if (!listing.folder.segments.empty()) {
    listing.folder.next_segment = listing.folder.segments.back() + 1;
  }
  return listing;
}

absl::Status somebody_elses(const std::string& folder, const std::string& name,
                            const std::string& why) {
  return base::status_error(
      absl::StatusCode::kFailedPrecondition,
      "{}: not a KV cache folder: it has a file '{}' {}; give --kv-ssd-path an empty folder",
      folder, name, why);
}

absl::StatusOr<uint32_t> read_format(base::Disk& disk) {
  ASSIGN_OR_RETURN(const std::shared_ptr<base::DiskFile> file, disk.open(kSsdFormatFile));
  ASSIGN_OR_RETURN(const int64_t size, file->size());
  base::DiskBuffer buffer(base::kDiskAlign);
  // A crash may have left less than was written.
  if (size < base::kDiskAlign) return decode_format_file({});
  RETURN_IF_ERROR(file->read(0, buffer.span()));
  return decode_format_file(buffer.span());
}

absl::Status write_format(base::Disk& disk, bool is_there) {
  ASSIGN_OR_RETURN(const std::shared_ptr<base::DiskFile> file,
                   is_there ? disk.open(kSsdFormatFile) : disk.create(kSsdFormatFile));
  base::DiskBuffer buffer(base::kDiskAlign);
  encode_format_file(buffer.span());
  RETURN_IF_ERROR(file->write(0, buffer.span()));
  RETURN_IF_ERROR(file->sync());
  return disk.sync_folder();
}

}  // namespace

absl::StatusOr<SsdFolder> look_into_ssd_folder(base::Disk& disk, const std::string& folder) {
  ASSIGN_OR_RETURN(Listing listing, list_folder(disk));
  if (!listing.has_format) {
    if (!listing.stranger.empty()) return somebody_elses(folder, listing.stranger, "and no FORMAT");
    if (listing.folder.segments.empty()) return std::move(listing.folder);
    return somebody_elses(folder, segment_name(listing.folder.segments.front()), "and no FORMAT");
  }
  const absl::StatusOr<uint32_t> version = read_format(disk);
  if (absl::IsDataLoss(version.status())) {
    return base::status_error(absl::StatusCode::kFailedPrecondition,
                              "{}: its file {} is not that of a KV cache folder, or was torn by a "
                              "power failure, which serve mends",
                              folder, kSsdFormatFile);
  }
  RETURN_IF_ERROR(version.status());
  if (*version == kSsdFormatVersion) return std::move(listing.folder);
  return base::status_error(absl::StatusCode::kFailedPrecondition,
                            "{}: a KV cache folder of format {}, and this program knows format {}; "
                            "use the program that wrote it, as serve of this one would empty it",
                            folder, *version, kSsdFormatVersion);
}

absl::StatusOr<SsdFolder> open_ssd_folder(base::Disk& disk, const std::string& folder) {
  ASSIGN_OR_RETURN(Listing listing, list_folder(disk));
  if (!listing.has_format) {
    RETURN_IF_ERROR(look_into_ssd_folder(disk, folder).status());
    RETURN_IF_ERROR(write_format(disk, false));
    return std::move(listing.folder);
  }
  const absl::StatusOr<uint32_t> version = read_format(disk);
  if (version.ok() && *version == kSsdFormatVersion) return std::move(listing.folder);
  if (!version.ok()) {
    if (!absl::IsDataLoss(version.status())) return version.status();
    // A power failure can tear the file as it is made; with a stranger's files it may be theirs.
    if (!listing.stranger.empty()) {
      return somebody_elses(folder, listing.stranger, "and a FORMAT that is not the tier's");
    }
  }
  for (const uint64_t number : listing.folder.segments) {
    RETURN_IF_ERROR(disk.remove(segment_name(number)));
  }
  RETURN_IF_ERROR(disk.sync_folder());
  RETURN_IF_ERROR(write_format(disk, true));
  listing.folder.segments.clear();
  return std::move(listing.folder);
}

}  // namespace pagoda::cache
