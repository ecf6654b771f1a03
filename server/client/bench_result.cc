#include "server/client/bench_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/client/units.h"

namespace pagoda::client {
namespace {

using Json = nlohmann::ordered_json;

double a_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string row(std::string_view name, const Samples& samples) {
  const SampleSummary s = samples.summary();
  if (s.n == 0) return fmt::format("  {:<18}none measured\n", name);
  return fmt::format("  {:<18}{:>11}{:>11}{:>11}{:>11}{:>11}\n", name, time_text(s.mean),
                     time_text(s.p50), time_text(s.p90), time_text(s.p99), time_text(s.max));
}

std::string load_text(const BenchOptions& options, const BenchResult& result) {
  std::string text = options.request_rate > 0
                         ? fmt::format("{} requests a second, at most {} at a time",
                                       options.request_rate, options.concurrency)
                         : fmt::format("{} at a time", options.concurrency);
  return text + fmt::format(", prompts of {} {}, answers of {} tokens", options.prompt_tokens,
                            result.exact_prompts ? "tokens" : "words", options.max_tokens);
}

Json summary_json(const Samples& samples) {
  const SampleSummary s = samples.summary();
  return {{"count", s.n}, {"mean", s.mean}, {"p50", s.p50},
          {"p90", s.p90}, {"p99", s.p99},   {"max", s.max}};
}

}  // namespace

std::string bench_text(const BenchOptions& options, const BenchResult& result) {
  std::string text = fmt::format("  {:<18}{}{}{}\n", "server", result.server, result.route,
                                 result.model.empty() ? "" : ", model " + printable(result.model));
  text += fmt::format("  {:<18}{}\n", "load", load_text(options, result));
  text += fmt::format("  {:<18}{} ok, {} failed", "requests", result.n_ok, result.n_failed);
  if (result.n_broken_off > 0) text += fmt::format(", {} broken off", result.n_broken_off);
  text += fmt::format(", in {:.2f} s\n", result.seconds);
  for (const auto& [kind, errors] : result.errors) {
    text += fmt::format("  {:<18}{} {}: {}\n", "", errors.n, kind, printable(errors.first));
  }
  text += fmt::format("  {:<18}{:.1f} output tokens a second, {:.1f} of prompts, {:.2f} requests\n",
                      "throughput", a_second(result.output_tokens, result.seconds),
                      a_second(result.prompt_tokens, result.seconds),
                      a_second(result.n_ok, result.seconds));
  if (result.cached_tokens > 0) {
    text += fmt::format("  {:<18}{} of {} prompt tokens\n", "from its cache", result.cached_tokens,
                        result.prompt_tokens);
  }
  if (result.n_ok == 0) return text;
  text += fmt::format("\n  {:<18}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "", "mean", "p50", "p90", "p99",
                      "max");
  return text + row("first token", result.first_token) + row("each further", result.per_token) +
         row("between events", result.gap) + row("whole request", result.whole);
}

std::string bench_json(const BenchOptions& options, const BenchResult& result) {
  Json errors = Json::object();
  for (const auto& [kind, each] : result.errors) {
    errors[kind] = {{"count", each.n}, {"first", each.first}};
  }
  const Json json = {
      {"server", result.server},
      {"route", result.route},
      {"model", result.model},
      {"load",
       {{"concurrency", options.concurrency},
        {"request_rate", options.request_rate},
        {"prompt_tokens", options.prompt_tokens},
        {"prompt_tokens_exact", result.exact_prompts},
        {"max_tokens", options.max_tokens},
        {"ignore_eos", options.ignore_eos},
        {"seed", options.seed}}},
      {"seconds", result.seconds},
      {"requests",
       {{"ok", result.n_ok}, {"failed", result.n_failed}, {"broken_off", result.n_broken_off}}},
      {"errors", std::move(errors)},
      {"tokens",
       {{"prompt", result.prompt_tokens},
        {"cached", result.cached_tokens},
        {"output", result.output_tokens}}},
      {"per_second",
       {{"requests", a_second(result.n_ok, result.seconds)},
        {"prompt_tokens", a_second(result.prompt_tokens, result.seconds)},
        {"output_tokens", a_second(result.output_tokens, result.seconds)}}},
      {"first_token_s", summary_json(result.first_token)},
      {"per_token_s", summary_json(result.per_token)},
      {"between_events_s", summary_json(result.gap)},
      {"request_s", summary_json(result.whole)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pagoda::client
