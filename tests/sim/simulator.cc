#include "tests/sim/simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/blocking.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory_disk.h"
#include "server/engine/engine.h"
#include "tests/sim/machine.h"

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
  bool lost = false;  // the process went away
};

class Simulator {
 public:
  Simulator(uint64_t seed, bool verbose)
      : random_(seed),
        verbose_(verbose),
        config_(draw_config()),
        runner_config_(config_.runner),
        machine_(std::make_unique<Machine>(config_, disk_, clock_)) {
    if (config_.has_ssd && chance(30)) disk_.set_capacity(int64_t{pick(64, 1024)} << 10);
    if (config_.has_ssd && chance(30)) {
      const int32_t percent = pick(1, 10);
      disk_.set_fail([this, percent](base::DiskOp, const std::string&, int64_t) {
        return faults_on_ && chance(percent) ? absl::UnavailableError("the disk failed")
                                             : absl::OkStatus();
      });
    }
    for (int32_t i = 0; i < 4; ++i) stems_.push_back(random_tokens(pick(1, max_len() / 2)));
  }

  SimResult run() {
    if (verbose_) {
      fmt::print("pool {} blocks of {} in {} groups, {} slots, {} rows a step, caching {}\n",
                 runner_config_.n_blocks, runner_config_.block_size, runner_config_.n_groups,
                 config_.engine.max_num_seqs, config_.engine.max_num_batched_tokens,
                 config_.cache.prefix_caching);
      fmt::print("host tier {} blocks, ssd {}\n", config_.host_blocks, config_.has_ssd);
    }
    const int32_t n_actions = pick(10, 60);
    for (int32_t i = 0; i < n_actions && result_.failure.empty(); ++i) act();
    unpin_all();
    come_to_rest();
    if (result_.failure.empty()) check_end();
    result_.n_requests = static_cast<int64_t>(sent_.size());
    count_machine();
    machine_.reset();
    return result_;
  }

 private:
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool chance(int32_t percent) { return pick(1, 100) <= percent; }

  MachineConfig draw_config() {
    MachineConfig config;
    config.runner = draw_runner_config();
    config.cache.n_blocks = config.runner.n_blocks;
    config.cache.block_size = config.runner.block_size;
    config.cache.n_groups = config.runner.n_groups;
    config.cache.prefix_caching = chance(80);
    config.engine.max_num_seqs = config.runner.n_slots;
    config.engine.max_num_batched_tokens = config.runner.max_rows;
    config.engine.max_queue = pick(1, 40);
    config.engine.max_model_len =
        config.runner.n_blocks / config.runner.n_groups * config.runner.block_size;
    config.engine.end_ids = {kEndId};
    config.engine.sessions.idle_host_us = pick(1, 100) * 1000;
    config.engine.sessions.idle_ssd_us = pick(1, 200) * 1000;
    config.engine.sessions.max_sessions = static_cast<size_t>(pick(1, 6));
    if (!config.cache.prefix_caching || chance(30)) return config;
    if (chance(50)) config.host_blocks = pick(1, chance(50) ? 6 : 60);
    config.has_ssd = config.host_blocks == 0 || chance(60);
    config.ssd_segment_bytes = int64_t{pick(2, 16)} << 14;
    config.ssd_bytes = config.ssd_segment_bytes * pick(4, 12);
    config.cache.tiers.ssd_write = static_cast<cache::SsdWrite>(pick(0, 3));
    config.cache.tiers.restore_policy = static_cast<cache::RestorePolicy>(pick(0, 2));
    return config;
  }

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
  int32_t max_len() const { return config_.engine.max_model_len; }

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
      machine_->engine.cancel(sent.request.id);
    } else if (what <= 57) {
      clock_.advance_us(pick(0, 5'000'000));
    } else if (what == 58 && chance(30)) {
      drained_ = true;
      machine_->engine.drain();
    } else if (what <= 61 && config_.has_ssd) {
      restart(chance(70));
    } else if (what <= 63 && config_.has_ssd) {
      rot();
    } else if (what <= 75) {
      ask_of_session();
    }
    for (int32_t n = pick(0, 12); n > 0 && result_.failure.empty(); --n) {
      step();
      pump(pick(0, 12));
    }
  }

  // What operators do.
  void ask_of_session() {
    const int32_t what = pick(1, 8);
    const cache::SessionKey key{chance(80) ? "" : "salt", fmt::format("session {}", pick(1, 5))};
    const std::vector<int32_t> tokens = make_prompt();
    const absl::Status posted = machine_->engine.post(
        [what, key, tokens](cache::KvCache& cache, cache::SessionTable& sessions) {
          // A session that is not there, or not in the right state, is refused.
          if (what == 1) sessions.pin(key).IgnoreError();
          if (what == 2) sessions.unpin(key).IgnoreError();
          if (what == 3) sessions.prefetch(key).IgnoreError();
          if (what == 4) sessions.offload(key).IgnoreError();
          if (what == 5) sessions.drop(key).IgnoreError();
          if (what == 6 && tokens[0] % 4 == 0) cache.reset();
          if (what == 7) {
            const cache::Explanation found = cache.explain({key.salt, ""}, tokens);
            int32_t n = 0;
            for (const int32_t each : found.n_tokens) n += each;
            CHECK_EQ(n, static_cast<int32_t>(tokens.size()));
          }
          if (what == 8 && sessions.drop_salt(key.salt)) {
            const int32_t n_left =
                static_cast<int32_t>(tokens.size()) - cache.residency({key.salt, ""}, tokens)[3];
            CHECK_EQ(n_left, 0);
          }
        });
    if (!posted.ok()) fail("a task is refused");
  }

  void unpin_all() {
    const absl::Status posted =
        machine_->engine.post([](cache::KvCache&, cache::SessionTable& sessions) {
          for (const cache::SessionView& view : sessions.list({}, 100)) {
            CHECK(sessions.unpin(view.key).ok());
          }
        });
    if (!posted.ok()) fail("a task is refused");
  }

  // Some of what the tiers have under way, in any order.
  bool pump(int32_t n) {
    bool any = false;
    for (; n > 0 && machine_->queue.queued() > 0; --n) {
      any |= machine_->queue.pump_one(random_());
      clock_.advance_us(pick(1, 3000));
    }
    return any;
  }

  void come_to_rest() {
    for (int64_t left = 200000; result_.failure.empty(); --left) {
      const bool worked = step();
      if (!pump(4) && !worked) break;
      if (left == 0) {
        fail(fmt::format("the engine never comes to rest: {} run, {} wait, {} queued",
                         machine_->engine.stats().n_running, machine_->engine.stats().n_waiting,
                         machine_->queue.queued()));
      }
    }
  }

  // By a signal that nobody can catch, with what that does to the disk; or in order.
  void restart(bool is_kill) {
    count_machine();
    ++result_.n_restarts;
    for (Sent& sent : sent_) sent.lost |= !sent.sink->finished;
    if (is_kill) disk_.crash(random_());
    machine_.reset();
    if (!is_kill && chance(50)) disk_.crash(random_());
    n_sent_before_ = sent_.size();
    machine_ = std::make_unique<Machine>(config_, disk_, clock_);
  }

  // A bit of some file turns, or its end is lost.
  void rot() {
    const auto names = disk_.list();
    if (!names.ok() || names->empty()) return;
    const std::string& name = (*names)[random_() % names->size()];
    const auto file = disk_.open(name);
    if (!file.ok()) return;
    const int64_t size = (*file)->size().value_or(0);
    if (size == 0) return;
    if (chance(70)) {
      auto at = static_cast<int64_t>(random_() % static_cast<uint64_t>(size));
      // The beginning of a unit is where headers and blocks are; most of the rest is filling.
      if (chance(70))
        at = at / base::kDiskAlign * base::kDiskAlign + at % machine_->runner.block_bytes();
      disk_.flip_bit(name, at);
    } else {
      disk_.truncate(name, static_cast<int64_t>(random_() % static_cast<uint64_t>(size)));
    }
  }

  void count_machine() {
    const engine::EngineStats stats = machine_->engine.stats();
    result_.n_steps += stats.n_steps;
    result_.n_preemptions += stats.n_preemptions;
    result_.n_hit_tokens += stats.cache.n_hit_tokens;
    result_.n_host_tokens += stats.cache.n_restored_tokens[1];
    result_.n_ssd_tokens += stats.cache.n_restored_tokens[2];
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
    if (chance(40)) {
      request.session = fmt::format("session {}", pick(1, 5));
      request.keep_priority = chance(70) ? 50 : pick(0, 100);
      if (chance(20)) request.keep_ttl_us = pick(1, 100'000);
    }
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
    const absl::Status status = machine_->engine.submit(std::move(request));
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
    const bool worked = machine_->engine.step();
    clock_.advance_us(1000);
    machine_->cache.check();
    if (base::n_waits_in_scopes() > 0) fail("a step waited for the disk");
    const engine::EngineStats shown = machine_->engine.stats();
    const engine::RequestCounts& counts = machine_->metrics.requests;
    if (shown.n_running != counts.n_running() || shown.n_waiting != counts.n_waiting()) {
      fail("the counts of requests are not those of the engine");
    }
    for (size_t i = 0; i < sent_.size(); ++i) {
      if (sent_[i].sink->n_after_finish > 0)
        fail(fmt::format("request {}: events after its end", i));
    }
    return worked;
  }

  void check_end() {
    const engine::EngineStats shown = machine_->engine.stats();
    if (shown.n_running != 0 || shown.n_waiting != 0) fail("requests are shown at rest");
    const cache::KvCacheStats stats = shown.cache;
    if (stats.n_in_use != 0 || stats.n_promised != 0) {
      fail(fmt::format("{} blocks in use and {} promised at rest", stats.n_in_use,
                       stats.n_promised));
    }
    if (!config_.cache.prefix_caching && stats.n_free != stats.n_blocks)
      fail("blocks lost at rest");
    if (!machine_->engine.idle()) fail("requests live at rest");
    for (size_t i = 0; i < sent_.size() && result_.failure.empty(); ++i) check_answer(i);
    const auto n_sent = static_cast<int64_t>(sent_.size() - n_sent_before_);
    const engine::RequestCounts& counts = machine_->metrics.requests;
    if (counts.n_started() != n_sent) fail("started count is wrong");
    int64_t n_finished = 0;
    for (const FinishReason reason : engine::kFinishReasons) {
      n_finished += counts.n_finished(reason);
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
    if (!sink.finished && !sent_[i].lost) return fail(fmt::format("request {} never ended", i));
    const HashRunner::SoloAnswer solo = solo_answer(request);
    std::vector<int32_t> want = solo.tokens;
    const bool whole = sink.finished &&
                       (sink.reason == FinishReason::kStop || sink.reason == FinishReason::kLength);
    if (whole) {
      ++result_.n_finished;
    } else {
      ++result_.n_aborted;
      const bool stuck =
          solo.is_stuck && absl::IsInvalidArgument(sink.error) && sink.tokens.size() == want.size();
      // What had begun when the engine was drained goes on.
      const bool refused = drained_ && sink.tokens.empty() && absl::IsUnavailable(sink.error);
      const bool expected =
          sent_[i].cancelled || sent_[i].lost || request.deadline_us != 0 || stuck || refused;
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
  base::FakeClock clock_;
  base::MemoryDisk disk_;
  bool faults_on_ = true;
  const MachineConfig config_;
  const HashRunnerConfig runner_config_;
  std::unique_ptr<Machine> machine_;
  size_t n_sent_before_ = 0;  // to machines that are gone
  std::vector<std::vector<int32_t>> stems_;
  std::vector<Sent> sent_;
  bool drained_ = false;  // one of the machines was
  SimResult result_;
};

}  // namespace

SimResult run_seed(uint64_t seed, bool verbose) { return Simulator(seed, verbose).run(); }

}  // namespace pagoda::sim
