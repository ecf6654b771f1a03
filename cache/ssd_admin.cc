#include "cache/ssd_admin.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_format.h"
#include "cache/ssd_segment.h"

namespace pagoda::cache {
namespace {

// One row of a report for each digest.
template <typename Row, typename Digest>
void count(std::map<Digest, Row>& rows, const Digest& digest, int64_t data_bytes) {
  Row& row = rows[digest];
  row.digest = digest;
  ++row.n_records;
  row.data_bytes += data_bytes;
}

template <typename Row, typename Digest>
std::vector<Row> rows_of(const std::map<Digest, Row>& rows) {
  std::vector<Row> all;
  for (const auto& [digest, row] : rows) all.push_back(row);
  return all;
}

absl::StatusOr<SegmentScan> scan(base::Disk& disk, uint64_t number, ScanMode mode) {
  ASSIGN_OR_RETURN(const std::shared_ptr<base::DiskFile> file, disk.open(segment_name(number)));
  return scan_segment(*file, number, mode, nullptr);
}

absl::StatusOr<SsdReport> report_of(base::Disk& disk, const std::string& folder, ScanMode mode) {
  ASSIGN_OR_RETURN(const SsdFolder known, look_into_ssd_folder(disk, folder));
  SsdReport report;
  std::map<base::Digest256, SsdReport::Identity> identities;
  std::map<base::Digest128, SsdReport::Salt> salts;
  for (const uint64_t number : known.segments) {
    ++report.n_segments;
    const absl::StatusOr<SegmentScan> segment = scan(disk, number, mode);
    if (!segment.ok()) {
      report.faults.push_back(
          fmt::format("{}: {}", segment_name(number), base::message_of(segment.status())));
      continue;
    }
    if (segment->footer_offset == 0) ++report.n_unfinished;
    report.file_bytes += segment->file_bytes;
    report.faults.insert(report.faults.end(), segment->faults.begin(), segment->faults.end());
    for (const SsdRecord& record : segment->records) {
      const bool is_first = report.n_records++ == 0;
      report.data_bytes += record.data_bytes;
      report.oldest_s = is_first ? record.written_s : std::min(report.oldest_s, record.written_s);
      report.newest_s = is_first ? record.written_s : std::max(report.newest_s, record.written_s);
      count(identities, record.identity, record.data_bytes);
      count(salts, record.block.salt, record.data_bytes);
    }
  }
  report.identities = rows_of(identities);
  report.salts = rows_of(salts);
  return report;
}

}  // namespace

absl::StatusOr<SsdReport> inspect_ssd(base::Disk& disk, const std::string& folder) {
  return report_of(disk, folder, ScanMode::kFooter);
}

absl::StatusOr<SsdReport> verify_ssd(base::Disk& disk, const std::string& folder) {
  return report_of(disk, folder, ScanMode::kVerify);
}

absl::StatusOr<int64_t> purge_ssd(base::Disk& disk, const std::string& folder) {
  ASSIGN_OR_RETURN(const SsdFolder known, look_into_ssd_folder(disk, folder));
  for (const uint64_t number : known.segments) RETURN_IF_ERROR(disk.remove(segment_name(number)));
  RETURN_IF_ERROR(disk.sync_folder());
  return std::ssize(known.segments);
}

}  // namespace pagoda::cache
