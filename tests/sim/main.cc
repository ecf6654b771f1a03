// pagoda_sim --seeds A..B   runs the seeds and prints a summary
// pagoda_sim --seed N       replays one and says what happened
#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tests/sim/simulator.h"

namespace {

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int usage() {
  fmt::print(stderr, "usage: pagoda_sim --seeds A..B | --seed N\n");
  return 2;
}

int replay(uint64_t seed) {
  const pagoda::sim::SimResult run = pagoda::sim::run_seed(seed, true);
  fmt::print("{} requests, {} finished, {} aborted, {} steps, {} preemptions, {} hit tokens: {}\n",
             run.n_requests, run.n_finished, run.n_aborted, run.n_steps, run.n_preemptions,
             run.n_hit_tokens, run.failure.empty() ? "right" : run.failure);
  return run.failure.empty() ? 0 : 1;
}

int run_all(uint64_t first, uint64_t last) {
  pagoda::sim::SimResult sum;
  int64_t n_failed = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const pagoda::sim::SimResult run = pagoda::sim::run_seed(seed, false);
    sum.n_requests += run.n_requests;
    sum.n_preemptions += run.n_preemptions;
    sum.n_hit_tokens += run.n_hit_tokens;
    sum.n_aborted += run.n_aborted;
    sum.n_steps += run.n_steps;
    sum.n_restarts += run.n_restarts;
    sum.n_host_tokens += run.n_host_tokens;
    sum.n_ssd_tokens += run.n_ssd_tokens;
    if (run.failure.empty()) continue;
    ++n_failed;
    fmt::print("seed {}: {}   (replay: pagoda_sim --seed {})\n", seed, run.failure, seed);
  }
  fmt::print(
      "seeds {}..{}: {} requests, {} aborted, {} steps, {} preemptions, {} hit tokens, "
      "{} from the host tier, {} from the SSD, {} restarts, {} seeds failed\n",
      first, last, sum.n_requests, sum.n_aborted, sum.n_steps, sum.n_preemptions, sum.n_hit_tokens,
      sum.n_host_tokens, sum.n_ssd_tokens, sum.n_restarts, n_failed);
  return n_failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return usage();
  spdlog::set_level(spdlog::level::off);  // disks fail here all the time
  const std::string_view flag = argv[1];
  const std::string_view value = argv[2];
  if (flag == "--seed") {
    const auto seed = number(value);
    return seed ? replay(*seed) : usage();
  }
  const size_t dots = value.find("..");
  if (flag != "--seeds" || dots == std::string_view::npos) return usage();
  const auto first = number(value.substr(0, dots));
  const auto last = number(value.substr(dots + 2));
  if (!first || !last || *first > *last) return usage();
  return run_all(*first, *last);
}
