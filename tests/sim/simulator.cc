#include "tests/sim/simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/clock.h"
#include "server/engine/engine.h"
#include "tests/sim/hash_runner.h"

namespace pagoda::sim {
namespace {

using engine::FinishReason;
using engine::TokenEvent;

constexpr int32_t kEndId = 1;

// Keeps what the engine says.
class RecordingSink final : public engine::TokenSink {
 public:
  void push(TokenEvent&& event) override {
    if (finished) ++n_after_finish;
    if (event.kind == TokenEvent::Kind::kToken) tokens.push_back(event.result.token);
    if (event.kind == TokenEvent::Kind::kPrompt) prompt_tokens.push_back(event.result.token);
    if (event.kind == TokenEvent::Kind::kFinish) {
      finished = true;
      reason = event.reason;
      stop_token = event.stop_token;
      usage = event.usage;
      error = event.error;
    }
  }
  std::vector<int32_t> tokens;
  std::vector<int32_t> prompt_tokens;
  bool finished = false;
  int32_t n_after_finish = 0;
  FinishReason reason = FinishReason::kStop;
  int32_t stop_token = -1;
  engine::Usage usage;
  absl::Status error;
};

struct Sent {
  engine::Request request;  // a copy; the engine has its own
  std::shared_ptr<RecordingSink> sink;
  bool cancelled = false;
};

class Simulator {
 public:
  Simulator(uint64_t seed, bool verbose)
      : random_(seed),
        verbose_(verbose),
        runner_config_(draw_runner_config()),
        metrics_(registry_),
        runner_(runner_config_),
        cache_(draw_cache_config()),
        engine_(draw_engine_config(), runner_, cache_, clock_, metrics_) {
    for (int32_t i = 0; i < 4; ++i) stems_.push_back(random_tokens(pick(1, max_len() / 2)));
  }

  SimResult run() {
    if (verbose_) {
      fmt::print("pool {} blocks of {} in {} groups, {} slots, {} rows a step, caching {}\n",
                 runner_config_.n_blocks, runner_config_.block_size, runner_config_.n_groups,
                 engine_.config().max_num_seqs, engine_.config().max_num_batched_tokens,
                 cache_.prefix_caching());
    }
    const int32_t n_actions = pick(10, 60);
    for (int32_t i = 0; i < n_actions && result_.failure.empty(); ++i) act();
    for (int64_t left = 200000; result_.failure.empty() && step(); --left) {
      if (left == 0) fail("the engine never comes to rest");
    }
    if (result_.failure.empty()) check_end();
    result_.n_requests = static_cast<int64_t>(sent_.size());
    result_.n_steps = engine_.stats().n_steps;
    result_.n_preemptions = engine_.stats().n_preemptions;
    result_.n_hit_tokens = cache_.stats().n_hit_tokens;
    return result_;
  }

 private:
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool chance(int32_t percent) { return pick(1, 100) <= percent; }

  HashRunnerConfig draw_runner_config() {
    HashRunnerConfig config;
    config.n_groups = chance(70) ? 1 : pick(2, 3);
    config.block_size = chance(80) ? 16 : 32;
    config.n_blocks = config.n_groups * pick(3, chance(50) ? 8 : 40);
    config.n_slots = pick(1, 9);
    config.max_rows = chance(30) ? pick(1, 8) : pick(8, 96);
    config.n_vocab = chance(50) ? 4 : 512;
    return config;
  }
  cache::KvCacheConfig draw_cache_config() {
    cache::KvCacheConfig config;
    config.n_blocks = runner_config_.n_blocks;
    config.block_size = runner_config_.block_size;
    config.n_groups = runner_config_.n_groups;
    config.prefix_caching = chance(80);
    return config;
  }
  engine::EngineConfig draw_engine_config() {
    engine::EngineConfig config;
    config.max_num_seqs = runner_config_.n_slots;
    config.max_num_batched_tokens = runner_config_.max_rows;
    config.max_queue = pick(1, 40);
    config.max_model_len = cache_.max_tokens();
    config.end_ids = {kEndId};
    return config;
  }
  int32_t max_len() const { return cache_.max_tokens(); }

  std::vector<int32_t> random_tokens(int32_t n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& token : tokens) token = pick(0, runner_config_.n_vocab - 1);
    return tokens;
  }

  void act() {
    const int32_t what = pick(1, 100);
    if (what <= 45) {
      for (int32_t n = pick(1, 4); n > 0; --n) submit();
    } else if (what <= 55 && !sent_.empty()) {
      Sent& sent = sent_[static_cast<size_t>(pick(0, static_cast<int32_t>(sent_.size()) - 1))];
      sent.cancelled = true;
      engine_.cancel(sent.request.id);
    } else if (what <= 57) {
      clock_.advance_us(pick(0, 5'000'000));
    } else if (what == 58 && chance(30)) {
      drained_ = true;
      engine_.drain();
    }
    for (int32_t n = pick(0, 12); n > 0 && result_.failure.empty(); --n) step();
  }

  void submit() {
    engine::Request request;
    request.id = RequestId(sent_.size() + 1);
    if (chance(20)) request.group = RequestId(1 + sent_.size() / 4);
    request.prompt = make_prompt();
    const int32_t room = max_len() - static_cast<int32_t>(request.prompt.size());
    request.sampling.max_tokens = pick(room > 0 ? 1 : 0, std::min(room, chance(80) ? 24 : 200));
    request.sampling.min_tokens = chance(20) ? pick(0, request.sampling.max_tokens) : 0;
    request.sampling.ignore_eos = chance(50);
    if (chance(20)) request.sampling.stop_ids = {2, 3};
    request.sampling.seed = static_cast<uint64_t>(pick(0, 3));
    request.sampling.n_prompt_logprobs = chance(10) ? 0 : -1;
    if (request.sampling.n_prompt_logprobs >= 0 && chance(50)) request.sampling.max_tokens = 0;
    if (chance(40)) constrain(request);
    request.choice = pick(0, 1);
    request.priority = chance(20) ? pick(-1, 1) : 0;
    request.tenant = chance(50) ? "a" : "b";
    request.salt = chance(80) ? "" : "salt";
    if (chance(20)) {
      request.adapter = AdapterId(pick(1, 2));
      request.adapter_key = fmt::format("adapter {}", request.adapter);
    }
    // The model's KV doesn't know of salts. Here it does, so that a block shared across salts
    // shows.
    if (!request.salt.empty()) request.adapter = AdapterId(request.adapter.value() + 10);
    request.arrival_us = clock_.now_us();
    if (chance(5)) request.deadline_us = clock_.now_us() + pick(1, 2'000'000);
    clock_.advance_us(1);
    Sent sent{request, std::make_shared<RecordingSink>(), false};
    request.sink = sent.sink;
    const absl::Status status = engine_.submit(std::move(request));
    if (status.ok()) {
      sent_.push_back(std::move(sent));
    } else if (absl::IsInvalidArgument(status)) {
      const HashRunner::SoloAnswer solo = solo_answer(sent.request);
      if (!solo.is_stuck || !solo.tokens.empty()) fail("a request is refused that has an answer");
    }
  }

  // Penalties, allowed ids and bad words, in the small vocabulary often too many.
  void constrain(engine::Request& request) {
    engine::SamplingParams& sampling = request.sampling;
    if (chance(40)) sampling.repetition_penalty = chance(50) ? 1.3F : 0.5F;
    if (chance(40)) sampling.frequency_penalty = 0.25F;
    if (chance(40)) sampling.presence_penalty = chance(50) ? 0.5F : -2.0F;
    for (int32_t id = 0; chance(95) && id < runner_config_.n_vocab; ++id) {
      if (chance(60)) sampling.allowed_ids.push_back(id);
    }
    if (chance(50)) sampling.allowed_ids.clear();
    for (int32_t n = chance(50) ? pick(1, 6) : 0; n > 0; --n) {
      std::vector<int32_t> word = random_tokens(pick(1, 4));
      const size_t n_before = std::min(word.size() - 1, request.prompt.size());
      // The end of the prompt, often; in a large vocabulary nothing else would ever fit.
      if (chance(50)) std::copy_n(request.prompt.rbegin(), n_before, word.rbegin() + 1);
      sampling.bad_words.push_back(std::move(word));
    }
  }

  // Often the beginning of a stem or of an earlier conversation, with something new behind it.
  std::vector<int32_t> make_prompt() {
    std::vector<int32_t> prompt;
    if (chance(70)) {
      const auto& stem = stems_[static_cast<size_t>(pick(0, 3))];
      prompt.assign(stem.begin(), stem.begin() + pick(0, static_cast<int32_t>(stem.size())));
    } else if (!sent_.empty()) {
      const Sent& sent =
          sent_[static_cast<size_t>(pick(0, static_cast<int32_t>(sent_.size()) - 1))];
      prompt = sent.request.prompt;
      prompt.insert(prompt.end(), sent.sink->tokens.begin(), sent.sink->tokens.end());
    }
    const std::vector<int32_t> end = random_tokens(pick(chance(50) ? 0 : 1, 20));
    prompt.insert(prompt.end(), end.begin(), end.end());
    if (prompt.empty()) prompt = random_tokens(1);
    const auto most = static_cast<size_t>(max_len());
    if (prompt.size() > most) prompt.resize(most);
    return prompt;
  }

  bool step() {
    const bool worked = engine_.step();
    clock_.advance_us(1000);
    cache_.check();
    const engine::EngineStats shown = engine_.stats();
    if (shown.n_running != metrics_.requests.n_running() ||
        shown.n_waiting != metrics_.requests.n_waiting()) {
      fail("the counts of requests are not those of the engine");
    }
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i].sink->n_after_finish > 0)
        fail(fmt::format("request {}: events after its end", i));
    }
    return worked;
  }

  void check_end() {
    const engine::EngineStats shown = engine_.stats();
    if (shown.n_running != 0 || shown.n_waiting != 0) fail("requests are shown at rest");
    const cache::KvCacheStats stats = shown.cache;
    if (stats.n_in_use != 0 || stats.n_promised != 0) {
      fail(fmt::format("{} blocks in use and {} promised at rest", stats.n_in_use,
                       stats.n_promised));
    }
    if (!cache_.prefix_caching() && stats.n_free != stats.n_blocks) fail("blocks lost at rest");
    if (!engine_.idle()) fail("requests live at rest");
    for (size_t i = 0; i < sent_.size() && result_.failure.empty(); ++i) check_answer(i);
    const auto n_sent = static_cast<int64_t>(sent_.size());
    if (metrics_.requests.n_started() != n_sent) fail("started count is wrong");
    int64_t n_finished = 0;
    for (const FinishReason reason : engine::kFinishReasons) {
      n_finished += metrics_.requests.n_finished(reason);
    }
    if (n_finished != n_sent) fail("finished counts are wrong");
  }

  HashRunner::SoloAnswer solo_answer(const engine::Request& request) const {
    const engine::SamplingParams& sampling = request.sampling;
    HashRunner::SoloRequest solo;
    solo.prompt = request.prompt;
    solo.max_tokens = sampling.max_tokens;
    solo.min_tokens = sampling.min_tokens;
    solo.stop_ids = solo.banned_ids = sampling.stop_ids;
    solo.banned_ids.push_back(kEndId);
    if (!sampling.ignore_eos) solo.stop_ids.push_back(kEndId);
    solo.allowed_ids = sampling.allowed_ids;
    solo.bad_words = sampling.bad_words;
    solo.repetition_penalty = sampling.repetition_penalty;
    solo.presence_penalty = sampling.presence_penalty;
    solo.frequency_penalty = sampling.frequency_penalty;
    solo.seed = sampling.seed;
    solo.choice = request.choice;
    solo.adapter = request.adapter.value();
    return HashRunner::solo_answer(runner_config_, solo);
  }

  void check_answer(size_t i) {
    const engine::Request& request = sent_[i].request;
    const RecordingSink& sink = *sent_[i].sink;
    if (!sink.finished) return fail(fmt::format("request {} never ended", i));
    const HashRunner::SoloAnswer solo = solo_answer(request);
    std::vector<int32_t> want = solo.tokens;
    const bool whole = sink.reason == FinishReason::kStop || sink.reason == FinishReason::kLength;
    if (whole) {
      ++result_.n_finished;
    } else {
      ++result_.n_aborted;
      const bool stuck =
          solo.is_stuck && absl::IsInvalidArgument(sink.error) && sink.tokens.size() == want.size();
      // What had begun when the engine was drained goes on.
      const bool refused = drained_ && sink.tokens.empty() && absl::IsUnavailable(sink.error);
      const bool expected = sent_[i].cancelled || request.deadline_us != 0 || stuck || refused;
      if (!expected) {
        return fail(fmt::format("request {} ended by {}", i, base::message_of(sink.error)));
      }
    }
    if (!whole && sink.tokens.size() < want.size()) want.resize(sink.tokens.size());
    if (sink.tokens != want) {
      return fail(fmt::format("request {}: {} tokens differ from the solo answer's {}", i,
                              sink.tokens.size(), want.size()));
    }
    if (whole && (sink.stop_token != solo.stop_token || solo.is_stuck)) {
      return fail(fmt::format("request {}: ended by token {} instead of {}", i, sink.stop_token,
                              solo.stop_token));
    }
    const std::vector<int32_t> scored(request.prompt.begin() + 1, request.prompt.end());
    if (whole && request.sampling.n_prompt_logprobs >= 0 && sink.prompt_tokens != scored) {
      return fail(fmt::format("request {}: prompt log probabilities for {} of {} tokens", i,
                              sink.prompt_tokens.size(), scored.size()));
    }
    if (sink.usage.cached_tokens >= static_cast<int32_t>(request.prompt.size())) {
      return fail(fmt::format("request {}: {} cached tokens", i, sink.usage.cached_tokens));
    }
  }

  void fail(std::string why) {
    if (result_.failure.empty()) result_.failure = std::move(why);
  }

  std::mt19937_64 random_;
  const bool verbose_;
  const HashRunnerConfig runner_config_;
  base::FakeClock clock_;
  prometheus::Registry registry_;
  engine::Metrics metrics_;
  HashRunner runner_;
  cache::KvCache cache_;
  std::vector<std::vector<int32_t>> stems_;
  std::vector<Sent> sent_;
  bool drained_ = false;
  SimResult result_;
  engine::Engine engine_;
};

}  // namespace

SimResult run_seed(uint64_t seed, bool verbose) { return Simulator(seed, verbose).run(); }

}  // namespace pagoda::sim
