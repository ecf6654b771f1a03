#include "server/kv_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/posix_disk.h"
#include "base/print.h"
#include "cache/identity.h"
#include "cache/ssd_folder.h"
#include "cache/ssd_format.h"
#include "server/client/units.h"

namespace pagoda {
namespace {

constexpr size_t kDigestShown = 6;  // bytes
// Clients invent salts freely: a table for people has so many rows.
constexpr size_t kMaxRows = 20;

std::string time_text(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return fmt::format("{} s after 1970", unix_s);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string number_of(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string short_digest(std::span<const uint8_t> digest) {
  return base::to_hex(digest.first(kDigestShown));
}
std::string name_of(const cache::SsdReport::Identity& identity) {
  return short_digest(identity.digest);
}
std::string name_of(const cache::SsdReport::Salt& salt) {
  return salt.digest == cache::salt_digest("") ? "none" : short_digest(salt.digest);
}

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("  {:<12}{}\n", name, text);
}

// The largest first.
template <typename Row>
std::string table(std::string_view title, std::vector<Row> rows) {
  std::string text = fmt::format("\n  {:<20}{:>12}{:>14}\n", title, "records", "bytes");
  std::ranges::stable_sort(rows, std::ranges::greater(), &Row::data_bytes);
  for (size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    text += fmt::format("    {:<18}{:>12}{:>14}\n", name_of(rows[i]), rows[i].n_records,
                        bytes_text(rows[i].data_bytes));
  }
  if (rows.size() > kMaxRows) {
    text += fmt::format("    and {} more; --json lists them all\n", rows.size() - kMaxRows);
  }
  return text;
}

std::string segments_text(const cache::SsdReport& report) {
  std::string text = fmt::format("{}", report.n_segments);
  if (report.n_unfinished > 0) text += fmt::format(", {} unfinished", report.n_unfinished);
  return text;
}

std::string faults_text(const cache::SsdReport& report) {
  if (report.faults.empty()) return "";
  std::string text = fmt::format("\n  {}\n", number_of(std::ssize(report.faults), "fault"));
  for (const std::string& fault : report.faults) text += fmt::format("    {}\n", fault);
  return text;
}

absl::Status cannot_read(const std::string& path, const std::error_code& error) {
  return base::status_error(absl::StatusCode::kPermissionDenied,
                            "{}: {}; the user that the server runs as can read it", path,
                            error.message());
}

// Opening a folder makes what is missing in it, so that a name mistyped must not get so far.
absl::Status check_is_ours(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    return base::status_error(absl::StatusCode::kNotFound,
                              "{}: there is no such folder; give the one that --kv-ssd-path named",
                              folder);
  }
  if (status.type() == fs::file_type::none) return cannot_read(folder, error);
  if (!fs::is_directory(status)) {
    return base::invalid_argument("{}: not a folder; give the one that --kv-ssd-path named",
                                  folder);
  }
  const fs::path format = fs::path(folder) / cache::kSsdFormatFile;
  const fs::file_status its_format = fs::status(format, error);
  if (its_format.type() == fs::file_type::none) return cannot_read(format.string(), error);
  if (fs::exists(its_format)) return absl::OkStatus();
  return base::invalid_argument(
      "{}: not the folder of an SSD tier, which would have a file {}; give the one that "
      "--kv-ssd-path named",
      folder, cache::kSsdFormatFile);
}

absl::StatusOr<std::unique_ptr<base::PosixDisk>> open(const std::string& folder) {
  auto disk = base::PosixDisk::open_folder(folder);
  if (!absl::IsFailedPrecondition(disk.status())) return disk;
  return base::status_error(absl::StatusCode::kAborted,
                            "{}: a server has this folder open; stop it first", folder);
}

absl::Status purge(const KvCommand& kv, base::Disk& disk) {
  if (!kv.yes) {
    ASSIGN_OR_RETURN(const cache::SsdFolder inside, cache::look_into_ssd_folder(disk, kv.folder));
    base::print(stderr, kv_purge_question(kv.folder, std::ssize(inside.segments)));
    std::array<char, 16> typed{};
    if (std::fgets(typed.data(), typed.size(), stdin) == nullptr || !is_yes(typed.data())) {
      base::print(stderr, "Nothing was removed.\n");
      return absl::CancelledError();
    }
  }
  ASSIGN_OR_RETURN(const int64_t n, cache::purge_ssd(disk, kv.folder));
  base::print(stdout, fmt::format("{}: {} removed\n", kv.folder, number_of(n, "file")));
  return absl::OkStatus();
}

absl::Status verify(const CommandLine& line, base::Disk& disk) {
  const std::string& folder = line.kv.folder;
  ASSIGN_OR_RETURN(const cache::SsdReport report, cache::verify_ssd(disk, folder));
  base::print(stdout,
              line.json ? kv_report_json(folder, report, true) : kv_verify_text(folder, report));
  if (report.faults.empty()) return absl::OkStatus();
  return base::status_error(absl::StatusCode::kDataLoss,
                            "{}: {}; a server that uses it computes again what is lost", folder,
                            number_of(std::ssize(report.faults), "fault"));
}

}  // namespace

std::string kv_inspect_text(const std::string& folder, const cache::SsdReport& report) {
  std::string text = fmt::format("{}\n", folder);
  text += "Records hold users' text at rest, as the token ids of prompts and answers.\n\n";
  text += row("segments", segments_text(report));
  text += row("files", bytes_text(report.file_bytes));
  text += row("records", fmt::format("{}, blocks of {} in all", report.n_records,
                                     bytes_text(report.data_bytes)));
  if (report.n_records > 0) {
    text += row("oldest", time_text(report.oldest_s));
    text += row("newest", time_text(report.newest_s));
    text += table("identity", report.identities);
    text += table("salt", report.salts);
  }
  return text + faults_text(report);
}

std::string kv_verify_text(const std::string& folder, const cache::SsdReport& report) {
  std::string text = fmt::format("{}\n", folder);
  text += row("segments", segments_text(report));
  text += row("records", fmt::format("{} good, blocks of {} in all", report.n_records,
                                     bytes_text(report.data_bytes)));
  return text + (report.faults.empty() ? row("faults", "none") : faults_text(report));
}

std::string kv_report_json(const std::string& folder, const cache::SsdReport& report,
                           bool verified) {
  using Json = nlohmann::ordered_json;
  Json identities = Json::array();
  for (const cache::SsdReport::Identity& identity : report.identities) {
    identities.push_back({{"identity", base::to_hex(identity.digest)},
                          {"records", identity.n_records},
                          {"data_bytes", identity.data_bytes}});
  }
  Json salts = Json::array();
  for (const cache::SsdReport::Salt& salt : report.salts) {
    salts.push_back({{"salt_digest", base::to_hex(salt.digest)},
                     {"is_none", salt.digest == cache::salt_digest("")},
                     {"records", salt.n_records},
                     {"data_bytes", salt.data_bytes}});
  }
  const bool has_records = report.n_records > 0;
  const Json json = {{"folder", folder},
                     {"verified", verified},
                     {"segments", report.n_segments},
                     {"unfinished_segments", report.n_unfinished},
                     {"file_bytes", report.file_bytes},
                     {"records", report.n_records},
                     {"data_bytes", report.data_bytes},
                     {"oldest_unix_s", has_records ? Json(report.oldest_s) : Json()},
                     {"newest_unix_s", has_records ? Json(report.newest_s) : Json()},
                     {"identities", std::move(identities)},
                     {"salts", std::move(salts)},
                     {"faults", report.faults}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string kv_purge_question(const std::string& folder, int64_t n_segments) {
  return fmt::format("Remove {} from {}, all KV that is kept there? [y/N] ",
                     number_of(n_segments, "file"), folder);
}

bool is_yes(std::string_view typed) {
  constexpr std::string_view kBlanks = " \t\r\n";
  while (!typed.empty() && kBlanks.find(typed.back()) != std::string_view::npos) {
    typed.remove_suffix(1);
  }
  return typed == "y" || typed == "Y" || typed == "yes" || typed == "Yes" || typed == "YES";
}

absl::Status run_kv(const CommandLine& line) {
  const KvCommand& kv = line.kv;
  RETURN_IF_ERROR(check_is_ours(kv.folder));
  const bool can_ask = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (kv.action == KvAction::kPurge && !kv.yes && !can_ask) {
    return base::invalid_argument(
        "{}: purge removes all KV that is kept there, and there is no terminal to ask on; give "
        "--yes",
        kv.folder);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<base::PosixDisk> disk, open(kv.folder));
  switch (kv.action) {
    case KvAction::kInspect: {
      ASSIGN_OR_RETURN(const cache::SsdReport report, cache::inspect_ssd(*disk, kv.folder));
      base::print(stdout, line.json ? kv_report_json(kv.folder, report, false)
                                    : kv_inspect_text(kv.folder, report));
      return absl::OkStatus();
    }
    case KvAction::kVerify:
      return verify(line, *disk);
    case KvAction::kPurge:
      return purge(kv, *disk);
  }
  return absl::OkStatus();
}

}  // namespace pagoda
