#include "server/kv_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/posix_disk.h"
#include "cache/identity.h"
#include "tests/unit/cache/ssd_fixture.h"

namespace pagoda {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// A folder that a real tier wrote, on a disk in memory.
class KvCommand : public cache::SsdTierTest {
 protected:
  // Twelve records in two segments, four of them without a salt.
  void write() {
    open_and_scan();
    for (int32_t id = 0; id < 12; ++id) {
      cache::BlockRecord record = cache::test_record(id);
      if (id % 3 == 0) record.salt = cache::salt_digest("");
      absl::Status status = absl::UnknownError("not called");
      begin_put(record, id, &status);
      queue.pump_all();
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  cache::SsdReport inspected() { return *cache::inspect_ssd(disk, "/kv"); }
  cache::SsdReport verified() { return *cache::verify_ssd(disk, "/kv"); }
};

TEST_F(KvCommand, InspectTellsWhatIsThereAndForWhom) {
  write();
  close();
  cache::SsdReport report = inspected();
  report.oldest_s = 1'764'545'201;
  report.newest_s = 1'764'545'999;
  ::setenv("TZ", "XYZ-2", 1);  // two hours ahead of UTC
  ::tzset();
  const std::string text = kv_inspect_text("/kv", report);
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(text, R"(/kv
Records hold users' text at rest, as the token ids of prompts and answers.

  segments    2
  files       160.0 KiB
  records     12, blocks of 70.3 KiB in all
  oldest      2025-12-01 01:26:41
  newest      2025-12-01 01:39:59

  identity                 records         bytes
    010000000000                12      70.3 KiB

  salt                     records         bytes
    000000000000                 8      46.9 KiB
    none                         4      23.4 KiB
)");
}

TEST_F(KvCommand, AFolderWithoutRecordsHasNoTables) {
  open_and_scan();
  close();
  const std::string text = kv_inspect_text("/kv", inspected());
  EXPECT_THAT(text, HasSubstr("  records     0, "));
  EXPECT_THAT(text, Not(HasSubstr("salt")));
  EXPECT_THAT(text, Not(HasSubstr("oldest")));
  const auto json = nlohmann::json::parse(kv_report_json("/kv", inspected(), false));
  EXPECT_TRUE(json["oldest_unix_s"].is_null());
  EXPECT_EQ(json["salts"].size(), 0U);
}

TEST_F(KvCommand, ATableForPeopleEnds) {
  cache::SsdReport report;
  report.n_records = 50;
  for (uint8_t i = 0; i < 25; ++i) report.salts.push_back({{i}, 2, 1000 * (i + 1)});
  const std::string text = kv_inspect_text("/kv", report);
  EXPECT_THAT(text, HasSubstr("bytes\n    180000000000                 2      24.4 KiB\n"));
  EXPECT_THAT(text, HasSubstr("    and 5 more; --json lists them all\n"));
  EXPECT_EQ(nlohmann::json::parse(kv_report_json("/kv", report, false))["salts"].size(), 25U);
}

TEST_F(KvCommand, VerifySaysThatAllIsGood) {
  write();
  close();
  EXPECT_EQ(kv_verify_text("/kv", verified()),
            "/kv\n  segments    2\n  records     12 good, blocks of 70.3 KiB in all\n"
            "  faults      none\n");
}

TEST_F(KvCommand, VerifyGivesEachFaultALine) {
  write();
  close();
  for (const int32_t id : {2, 5}) {
    const auto [name, offset] = *find_record(id);
    disk.flip_bit(name, offset + 5000);
  }
  EXPECT_TRUE(inspected().faults.empty());
  const cache::SsdReport report = verified();
  const std::string text = kv_verify_text("/kv", report);
  EXPECT_THAT(text, HasSubstr("  records     10 good"));
  ASSERT_EQ(report.faults.size(), 2U);
  EXPECT_THAT(
      text, EndsWith("\n  2 faults\n    " + report.faults[0] + "\n    " + report.faults[1] + "\n"));
  EXPECT_THAT(report.faults[0], HasSubstr("checksum"));
}

TEST_F(KvCommand, ASegmentThatACrashLeftIsUnfinished) {
  write();
  disk.crash(7);
  close();
  const cache::SsdReport report = inspected();
  EXPECT_EQ(report.n_unfinished, 1);
  EXPECT_THAT(kv_inspect_text("/kv", report), HasSubstr("  segments    2, 1 unfinished\n"));
  EXPECT_THAT(kv_verify_text("/kv", verified()), HasSubstr("  segments    2, 1 unfinished\n"));
}

TEST_F(KvCommand, JsonHasWholeDigests) {
  write();
  close();
  const auto json = nlohmann::json::parse(kv_report_json("/kv", verified(), true));
  EXPECT_EQ(json["folder"], "/kv");
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["segments"], 2);
  EXPECT_EQ(json["records"], 12);
  EXPECT_EQ(json["data_bytes"], 12 * cache::kTestBlockBytes);
  EXPECT_EQ(json["newest_unix_s"], clock.unix_s());
  ASSERT_EQ(json["identities"].size(), 1U);
  EXPECT_EQ(json["identities"][0]["identity"], "01" + std::string(62, '0'));
  ASSERT_EQ(json["salts"].size(), 2U);
  for (const auto& salt : json["salts"]) {
    EXPECT_EQ(salt["salt_digest"].get<std::string>().size(), 32U);
    EXPECT_EQ(salt["records"], salt["is_none"].get<bool>() ? 4 : 8);
  }
  EXPECT_TRUE(json["faults"].is_array());
}

TEST(KvPurge, TheQuestionCountsAndOnlyYesIsYes) {
  EXPECT_EQ(kv_purge_question("/kv", 1),
            "Remove 1 file from /kv, all KV that is kept there? [y/N] ");
  EXPECT_THAT(kv_purge_question("/kv", 12), HasSubstr("12 files"));
  for (const char* yes : {"y\n", "Y\r\n", "yes", "YES \n"}) EXPECT_TRUE(is_yes(yes)) << yes;
  for (const char* no : {"", "\n", "n\n", "yellow\n", " "}) EXPECT_FALSE(is_yes(no)) << no;
}

// A real folder, since it is about what opening one does.
class KvFolder : public testing::Test {
 protected:
  KvFolder() {
    std::string path = testing::TempDir() + "/kv-XXXXXX";
    path_ = ::mkdtemp(path.data());
  }
  ~KvFolder() override { std::filesystem::remove_all(path_); }

  void write_format(const std::string& text) {
    std::string unit(static_cast<size_t>(base::kDiskAlign), '\0');
    unit.replace(0, text.size(), text);
    std::ofstream(path_ / "FORMAT", std::ios::binary) << unit;
  }
  // Purging would need no terminal here.
  absl::Status run(KvAction action = KvAction::kInspect) {
    CommandLine line;
    line.kv = {.action = action, .folder = path_.string(), .yes = true};
    return run_kv(line);
  }
  static std::string message(const absl::Status& status) { return base::message_of(status); }

  std::filesystem::path path_;
};

TEST_F(KvFolder, OneOfSomebodyElseIsLeftAlone) {
  for (const KvAction action : {KvAction::kInspect, KvAction::kVerify, KvAction::kPurge}) {
    EXPECT_EQ(message(run(action)), path_.string() +
                                        ": not the folder of an SSD tier, which would have a file "
                                        "FORMAT; give the one that --kv-ssd-path named");
    EXPECT_TRUE(std::filesystem::is_empty(path_));
  }
}

TEST_F(KvFolder, OneThatIsNotThereIsNotMade) {
  path_ /= "none";
  EXPECT_THAT(message(run()), HasSubstr("there is no such folder"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  path_ = path_.parent_path();
}

TEST_F(KvFolder, AFileIsNone) {
  write_format("x");
  path_ /= "FORMAT";
  EXPECT_THAT(message(run()), HasSubstr("FORMAT: not a folder; give"));
  path_ = path_.parent_path();
}

TEST_F(KvFolder, AnotherFormatIsNamedAndKept) {
  write_format("pagoda kv cache, format 999\n");
  std::ofstream(path_ / cache::segment_name(1)) << "x";
  for (const KvAction action : {KvAction::kInspect, KvAction::kVerify, KvAction::kPurge}) {
    const absl::Status status = run(action);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(status), HasSubstr("of format 999, and this program knows format 1"));
    EXPECT_TRUE(std::filesystem::exists(path_ / cache::segment_name(1)));
  }
  write_format("a letter\n");
  EXPECT_EQ(run().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(run()), HasSubstr("its file FORMAT is not that of a KV cache folder"));
}

TEST_F(KvFolder, OneThatAServerHasIsRefused) {
  write_format("pagoda kv cache, format 1\n");
  auto held = base::PosixDisk::open_folder(path_.string());
  ASSERT_TRUE(held.ok()) << held.status();
  const absl::Status status = run(KvAction::kPurge);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(message(status), path_.string() + ": a server has this folder open; stop it first");
  held->reset();
  EXPECT_TRUE(run().ok());
}

TEST_F(KvFolder, PurgeRemovesSegmentsAndNothingElse) {
  write_format("pagoda kv cache, format 1\n");
  std::ofstream(path_ / cache::segment_name(1)) << "x";
  std::ofstream(path_ / cache::segment_name(9)) << "x";
  std::ofstream(path_ / "letter.txt") << "mine";
  EXPECT_EQ(run(KvAction::kVerify).code(), absl::StatusCode::kDataLoss);
  testing::internal::CaptureStdout();
  EXPECT_TRUE(run(KvAction::kPurge).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), path_.string() + ": 2 files removed\n");
  EXPECT_FALSE(std::filesystem::exists(path_ / cache::segment_name(9)));
  EXPECT_TRUE(std::filesystem::exists(path_ / "letter.txt"));
  EXPECT_TRUE(run(KvAction::kVerify).ok());
}

}  // namespace
}  // namespace pagoda
