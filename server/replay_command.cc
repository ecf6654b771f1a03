#include "server/replay_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/fs.h"
#include "base/print.h"
#include "server/client/units.h"

namespace pagoda {
namespace {

using cache::ReplayPolicy;
using cache::ReplayResult;

// Of the working set, in per mille.
constexpr std::array<int64_t, 8> kParts = {10, 20, 50, 100, 200, 400, 700, 1000};

double percent(int64_t part, int64_t all) {
  return all == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(all);
}

int64_t found(const ReplayResult& result) {
  return std::accumulate(result.hit_tokens.begin(), result.hit_tokens.end(), int64_t{0});
}

double found_percent(const ReplayResult& result) {
  return percent(found(result), result.prompt_tokens);
}

std::string size_text(const ReplayReport& report, int64_t blocks) {
  if (report.block_bytes == 0) return fmt::format("{} blocks", blocks);
  return bytes_text(blocks * report.block_bytes);
}

absl::StatusOr<int64_t> blocks_of(const cache::Trace& trace, int64_t bytes) {
  if (bytes == 0) return 0;
  if (trace.block_bytes == 0) {
    return base::invalid_argument(
        "this trace doesn't say what a block takes, so a size says nothing; give --block-bytes");
  }
  return bytes / trace.block_bytes;
}

void run_policies(const cache::Trace& trace, std::span<const int32_t> next, ReplayRow& row) {
  cache::ReplayConfig config;
  config.device_blocks = std::max<int64_t>(1, row.device_blocks);
  config.host_blocks = row.host_blocks;
  config.ssd_blocks = row.ssd_blocks;
  config.policy = ReplayPolicy::kLru;
  row.lru = cache::replay(trace, config);
  config.policy = ReplayPolicy::kScore;
  row.score = cache::replay(trace, config);
  config.policy = ReplayPolicy::kBest;
  row.best = cache::replay(trace, config, next);
}

nlohmann::ordered_json result_json(const ReplayResult& result) {
  return {{"device_tokens", result.hit_tokens[0]},
          {"host_tokens", result.hit_tokens[1]},
          {"ssd_tokens", result.hit_tokens[2]},
          {"hit_percent", found_percent(result)},
          {"saved_percent", 100 * result.saved},
          {"evicted_blocks", result.n_evicted},
          {"put_blocks", result.n_put},
          {"ssd_skipped_blocks", result.ssd_blocks_skipped},
          {"cut_paths", result.n_paths_cut}};
}

std::string tier_lines(const ReplayRow& row) {
  std::string text = fmt::format("\n  {:<22}{:>9}{:>9}{:>9}{:>9}\n", "by tier, %", "device", "host",
                                 "SSD", "together");
  const auto line = [&](std::string_view name, const ReplayResult& result) {
    const int64_t all = result.prompt_tokens;
    text += fmt::format("  {:<22}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}\n", name,
                        percent(result.hit_tokens[0], all), percent(result.hit_tokens[1], all),
                        percent(result.hit_tokens[2], all), found_percent(result));
  };
  line("least recently used", row.lru);
  line("scored", row.score);
  line("best possible", row.best);
  return text;
}

}  // namespace

absl::StatusOr<ReplayReport> replay_trace(const cache::Trace& trace, const ReplayCommand& command) {
  ReplayReport report;
  report.block_size = trace.block_size;
  report.block_bytes = trace.block_bytes;
  report.is_cut = trace.n_lines_cut > 0;
  report.facts = cache::facts_of(trace);
  if (command.device_bytes > 0) {
    ReplayRow& row = report.rows.emplace_back();
    ASSIGN_OR_RETURN(row.device_blocks, blocks_of(trace, command.device_bytes));
    ASSIGN_OR_RETURN(row.host_blocks, blocks_of(trace, command.host_bytes));
    ASSIGN_OR_RETURN(row.ssd_blocks, blocks_of(trace, command.ssd_bytes));
  } else if (command.host_bytes > 0 || command.ssd_bytes > 0) {
    return base::invalid_argument("--host and --ssd lie below a device: give --device too");
  } else {
    for (const int64_t part : kParts) {
      report.rows.push_back({.device_blocks = report.facts.n_blocks * part / 1000,
                             .host_blocks = 0,
                             .ssd_blocks = 0,
                             .lru = {},
                             .score = {},
                             .best = {}});
    }
  }
  const std::clock_t begin = std::clock();
  const std::vector<int32_t> next = cache::next_lookups(trace);
  for (ReplayRow& row : report.rows) run_policies(trace, next, row);
  report.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return report;
}

std::string replay_text(const ReplayReport& report) {
  const cache::TraceFacts& facts = report.facts;
  std::string text = fmt::format(
      "{}\n\n"
      "  {} requests in {:.1f} hours, {} tokens of prompts, {} of answers\n"
      "  {} different blocks of {} tokens: a working set of {}\n"
      "  with room for all of it, {:.1f} % of the prompts' tokens are found\n",
      report.path, facts.n_requests, static_cast<double>(facts.span_us) / 3600e6,
      count_text(facts.prompt_tokens), count_text(facts.output_tokens), facts.n_blocks,
      report.block_size, size_text(report, facts.n_blocks),
      percent(facts.hit_tokens, facts.prompt_tokens));
  if (report.is_cut) text += "  its last line has no end and was left out\n";
  text += fmt::format("\n  {:<22}{:>9}{:>9}{:>9}{:>12}\n", "tokens found, %", "LRU", "scored",
                      "best", "time saved");
  for (const ReplayRow& row : report.rows) {
    const int64_t blocks = row.device_blocks + row.host_blocks + row.ssd_blocks;
    text += fmt::format(
        "  {:<22}{:>9.1f}{:>9.1f}{:>9.1f}{:>10.1f} %\n",
        fmt::format("{} ({:.3g} %)", size_text(report, blocks), percent(blocks, facts.n_blocks)),
        found_percent(row.lru), found_percent(row.score), found_percent(row.best),
        100 * row.lru.saved);
  }
  if (report.rows.size() == 1) text += tier_lines(report.rows.front());
  const auto n_runs = static_cast<double>(3 * report.rows.size());
  text += fmt::format(
      "\n  Time saved: of all prefill, by LRU, which is what the server does. {} requests a "
      "second.\n",
      count_text(static_cast<int64_t>(static_cast<double>(facts.n_requests) * n_runs /
                                      std::max(report.seconds, 1e-3))));
  return text;
}

std::string replay_json(const ReplayReport& report) {
  using Json = nlohmann::ordered_json;
  const cache::TraceFacts& facts = report.facts;
  Json rows = Json::array();
  for (const ReplayRow& row : report.rows) {
    rows.push_back({{"device_blocks", row.device_blocks},
                    {"host_blocks", row.host_blocks},
                    {"ssd_blocks", row.ssd_blocks},
                    {"lru", result_json(row.lru)},
                    {"scored", result_json(row.score)},
                    {"best", result_json(row.best)}});
  }
  const Json json = {{"trace", report.path},
                     {"requests", facts.n_requests},
                     {"prompt_tokens", facts.prompt_tokens},
                     {"output_tokens", facts.output_tokens},
                     {"span_s", static_cast<double>(facts.span_us) * 1e-6},
                     {"block_size", report.block_size},
                     {"block_bytes", report.block_bytes},
                     {"blocks", facts.n_blocks},
                     {"blocks_reused", facts.n_blocks_reused},
                     {"hit_tokens", facts.hit_tokens},
                     {"rows", std::move(rows)},
                     {"cpu_seconds", report.seconds}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status run_replay(const CommandLine& line) {
  base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(cache::Trace trace, cache::read_trace(fs, line.replay.trace));
  if (line.replay.block_bytes > 0) trace.block_bytes = line.replay.block_bytes;
  ASSIGN_OR_RETURN(ReplayReport report, replay_trace(trace, line.replay));
  report.path = line.replay.trace;
  base::print(stdout, line.json ? replay_json(report) : replay_text(report));
  return absl::OkStatus();
}

}  // namespace pagoda
