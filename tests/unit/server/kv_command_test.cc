#include "server/kv_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cache/identity.h"

namespace pagoda {
namespace {

using testing::HasSubstr;
using testing::Not;

cache::SsdReport report() {
  cache::SsdReport report;
  report.n_segments = 3;
  report.n_unfinished = 1;
  report.file_bytes = 3 << 20;
  report.n_records = 7;
  report.data_bytes = 2 << 20;
  report.oldest_s = 1'764'545'201;
  report.newest_s = 1'764'545'999;
  report.identities.push_back({{0xab, 0xcd}, 7, 2 << 20});
  report.salts.push_back({cache::salt_digest(""), 5, 1 << 20});
  report.salts.push_back({{0x12}, 2, 1 << 20});
  return report;
}

TEST(KvCommand, TextTellsWhatIsThereAndForWhom) {
  const std::string text = kv_report_text("/kv", report(), false);
  EXPECT_THAT(text, HasSubstr("3, 1 of them without a footer"));
  EXPECT_THAT(text, HasSubstr("7, blocks of 2.0 MiB in all\n"));
  EXPECT_THAT(text, HasSubstr("abcd00000000"));
  EXPECT_THAT(text, HasSubstr("none"));
  EXPECT_THAT(text, HasSubstr("what users wrote"));
  EXPECT_THAT(text, Not(HasSubstr("fault")));
}

TEST(KvCommand, FaultsAreListed) {
  cache::SsdReport odd = report();
  odd.faults = {"segment-1.kv, byte 4096: a block fails its checksum"};
  EXPECT_THAT(kv_report_text("/kv", odd, true), HasSubstr("    segment-1.kv, byte 4096: a block"));
  const auto json = nlohmann::json::parse(kv_report_json("/kv", odd, true));
  EXPECT_EQ(json["faults"].size(), 1U);
  EXPECT_EQ(json["verified"], true);
  EXPECT_EQ(json["salts"][1]["records"], 2);
}

TEST(KvCommand, AnEmptyFolderHasNoTables) {
  EXPECT_THAT(kv_report_text("/kv", {}, false), Not(HasSubstr("cache salt")));
}

TEST(KvCommand, AFolderOfSomebodyElseIsLeftAlone) {
  CommandLine line;
  line.kv = {.action = "inspect", .folder = testing::TempDir(), .yes = false};
  EXPECT_THAT(std::string(run_kv(line).message()), HasSubstr("not a folder of the SSD tier"));
  line.kv.folder += "/nowhere";
  EXPECT_THAT(std::string(run_kv(line).message()), HasSubstr("there is no such folder"));
}

}  // namespace
}  // namespace pagoda
