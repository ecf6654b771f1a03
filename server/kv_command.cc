#include "server/kv_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "base/check.h"
#include "base/hash.h"
#include "base/posix_disk.h"
#include "base/print.h"
#include "cache/identity.h"
#include "cache/ssd_format.h"
#include "server/client/units.h"

namespace pagoda {
namespace {

constexpr size_t kDigestShown = 6;  // bytes

std::string time_text(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return fmt::format("{} (Unix)", unix_s);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string short_digest(std::span<const uint8_t> digest) {
  return base::to_hex(digest.first(kDigestShown));
}

std::string salt_name(const cache::SsdReport::Salt& salt) {
  return salt.digest == cache::salt_digest("") ? "none" : short_digest(salt.digest);
}

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("  {:<12}{}\n", name, text);
}

std::string table_row(std::string_view name, int64_t n_records, int64_t bytes) {
  return fmt::format("    {:<16}{:>10}{:>14}\n", name, n_records, bytes_text(bytes));
}

// Asked only of a person.
absl::Status confirm_purge(const std::string& folder) {
  if (::isatty(STDIN_FILENO) == 0) {
    return base::invalid_argument("{}: purge removes all KV that is kept there; say so by --yes",
                                  folder);
  }
  base::print(stderr, fmt::format("Remove all KV that is kept in {}? [y/N] ", folder));
  std::array<char, 16> answer{};
  const char* const line = std::fgets(answer.data(), answer.size(), stdin);
  if (line != nullptr && (*line == 'y' || *line == 'Y')) return absl::OkStatus();
  return absl::CancelledError("nothing was removed");
}

// Opening a folder makes what is missing in it, so that a name mistyped must not get so far.
absl::Status check_is_ours(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return base::status_error(absl::StatusCode::kNotFound, "{}: there is no such folder", folder);
  }
  if (!std::filesystem::exists(std::filesystem::path(folder) / cache::kSsdFormatFile, error)) {
    return base::invalid_argument(
        "{}: not a folder of the SSD tier, which would have a file named {}", folder,
        cache::kSsdFormatFile);
  }
  return absl::OkStatus();
}

}  // namespace

std::string kv_report_text(const std::string& folder, const cache::SsdReport& report,
                           bool verified) {
  std::string text = fmt::format("{}\n\n", folder);
  text += row("segments", fmt::format("{}, {} of them without a footer", report.n_segments,
                                      report.n_unfinished));
  text += row("files", bytes_text(report.file_bytes));
  text += row("records",
              fmt::format("{}, blocks of {} in all{}", report.n_records,
                          bytes_text(report.data_bytes), verified ? ", all of them read" : ""));
  if (report.n_records > 0) {
    text += row("written",
                fmt::format("{} to {}", time_text(report.oldest_s), time_text(report.newest_s)));
  }
  if (!report.identities.empty()) {
    text += fmt::format("\n  {:<18}{:>10}{:>14}\n", "model and format", "records", "bytes");
    for (const cache::SsdReport::Identity& identity : report.identities) {
      text += table_row(short_digest(identity.digest), identity.n_records, identity.data_bytes);
    }
    text += fmt::format("\n  {:<18}{:>10}{:>14}\n", "cache salt", "records", "bytes");
    for (const cache::SsdReport::Salt& salt : report.salts) {
      text += table_row(salt_name(salt), salt.n_records, salt.data_bytes);
    }
  }
  text += "\n  The records hold what users wrote and were answered, as token ids.\n";
  if (report.faults.empty()) return text;
  text += fmt::format("\n  {} faults; what they hit is computed again:\n", report.faults.size());
  for (const std::string& fault : report.faults) text += fmt::format("    {}\n", fault);
  return text;
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
                     {"records", salt.n_records},
                     {"data_bytes", salt.data_bytes}});
  }
  const Json json = {{"folder", folder},
                     {"verified", verified},
                     {"segments", report.n_segments},
                     {"unfinished_segments", report.n_unfinished},
                     {"file_bytes", report.file_bytes},
                     {"records", report.n_records},
                     {"data_bytes", report.data_bytes},
                     {"oldest_unix_s", report.oldest_s},
                     {"newest_unix_s", report.newest_s},
                     {"identities", std::move(identities)},
                     {"salts", std::move(salts)},
                     {"faults", report.faults}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status run_kv(const CommandLine& line) {
  const KvCommand& kv = line.kv;
  RETURN_IF_ERROR(check_is_ours(kv.folder));
  ASSIGN_OR_RETURN(const std::unique_ptr<base::PosixDisk> disk,
                   base::PosixDisk::open_folder(kv.folder));
  if (kv.action == "purge") {
    if (!kv.yes) RETURN_IF_ERROR(confirm_purge(kv.folder));
    ASSIGN_OR_RETURN(const int64_t n, cache::purge_ssd(*disk, kv.folder));
    base::print(stdout, fmt::format("{}: {} segments removed\n", kv.folder, n));
    return absl::OkStatus();
  }
  const bool verifies = kv.action == "verify";
  ASSIGN_OR_RETURN(const cache::SsdReport report, verifies ? cache::verify_ssd(*disk, kv.folder)
                                                           : cache::inspect_ssd(*disk, kv.folder));
  base::print(stdout, line.json ? kv_report_json(kv.folder, report, verifies)
                                : kv_report_text(kv.folder, report, verifies));
  if (!verifies || report.faults.empty()) return absl::OkStatus();
  return base::status_error(absl::StatusCode::kDataLoss,
                            "{}: {} faults; a server that uses it computes again what they hit",
                            kv.folder, report.faults.size());
}

}  // namespace pagoda
