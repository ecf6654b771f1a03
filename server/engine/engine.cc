#include "server/engine/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <utility>

#include "base/blocking.h"
#include "cache/trace_writer.h"

namespace pagoda::engine {
namespace {

constexpr int64_t kIndexPollUs = 2000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

double seconds(int64_t us) { return static_cast<double>(us) * 1e-6; }

// Why the sampler found no token that may follow.
absl::Status why_no_token(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request().sampling;
  if (sampling.allowed_ids.empty() && sampling.bad_words.empty() && sampling.logit_bias.empty()) {
    return absl::InternalError("the model gave no logit that is a number above minus infinity");
  }
  return base::invalid_argument(
      "after {} tokens of the answer no token may follow: allowed_token_ids, bad_words, logit_bias "
      "and min_tokens together ban them all",
      sequence.n_output());
}

}  // namespace

Engine::Engine(EngineConfig config, model::ModelRunner& runner, cache::KvCache& cache,
               const base::Clock& clock, Metrics& metrics)
    : config_(std::move(config)),
      runner_(runner),
      cache_(cache),
      clock_(clock),
      sessions_(config_.sessions, cache, clock),
      metrics_(metrics) {
  CHECK_GT(config_.max_num_seqs, 0);
  CHECK_LE(config_.max_num_seqs, runner.n_slots());
  CHECK_GT(config_.max_num_batched_tokens, 0);
  CHECK_LE(config_.max_num_batched_tokens, runner.max_rows());
  CHECK_LE(config_.max_model_len, cache.max_tokens());
  for (int32_t i = config_.max_num_seqs - 1; i >= 0; --i) free_slots_.push_back(SlotId(i));
  metrics_.set_cache_config(cache_.block_size(), cache_.n_blocks(), cache_.prefix_caching());
  publish(false);
}

Engine::~Engine() { abort_everything(absl::UnavailableError("the engine has ended")); }

absl::Status Engine::submit(Request request) {
  const auto prompt_len = static_cast<int64_t>(request.prompt.size());
  if (prompt_len == 0) return base::invalid_argument("prompt: must have at least one token");
  const int64_t max_tokens = request.sampling.max_tokens;
  if (prompt_len + max_tokens > config_.max_model_len) {
    return base::invalid_argument(
        "this server's maximum context length is {} tokens, but the prompt has {} and max_tokens "
        "asks for {} more",
        config_.max_model_len, prompt_len, max_tokens);
  }
  RETURN_IF_ERROR(check_drawable(request.sampling, config_.end_ids, runner_.n_vocab()));
  {
    std::lock_guard lock(mutex_);
    if (inbox_.draining || inbox_.stopping) {
      return absl::UnavailableError("the server is shutting down");
    }
    if (n_live_ >= config_.max_num_seqs + config_.max_queue) {
      return base::status_error(absl::StatusCode::kResourceExhausted,
                                "{} requests are running or waiting already", n_live_);
    }
    if (n_live_++ == 0) progress_us_ = clock_.now_us();
    metrics_.requests.start();
    inbox_.requests.push_back(std::move(request));
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void Engine::cancel(RequestId id, FinishReason reason) {
  {
    std::lock_guard lock(mutex_);
    inbox_.cancels.emplace_back(id, reason);
  }
  wake_.notify_one();
}

void Engine::drain() {
  {
    std::lock_guard lock(mutex_);
    inbox_.draining = inbox_.drain_due = true;
  }
  wake_.notify_one();
}

void Engine::abort_all(absl::Status why) {
  {
    std::lock_guard lock(mutex_);
    inbox_.abort = std::move(why);
  }
  wake_.notify_one();
}

void Engine::stop() {
  {
    std::lock_guard lock(mutex_);
    inbox_.stopping = true;
  }
  wake_.notify_one();
}

absl::Status Engine::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (inbox_.closed) return absl::UnavailableError("the server is shutting down");
    inbox_.tasks.push_back(std::move(task));
  }
  wake_.notify_one();
  return absl::OkStatus();
}

void Engine::wake() {
  {
    std::lock_guard lock(mutex_);
    inbox_.woken = true;
  }
  wake_.notify_one();
}

EngineStats Engine::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.n_live = n_live_;
  stats.progress_us = progress_us_;
  return stats;
}

bool Engine::idle() const {
  std::lock_guard lock(mutex_);
  return n_live_ == 0;
}

void Engine::run() {
  for (bool worked = true;;) {
    {
      std::unique_lock lock(mutex_);
      if (!worked) wait_for_work(lock);
      if (inbox_.stopping) break;
    }
    worked = step();
  }
  {
    std::lock_guard lock(mutex_);
    inbox_.closed = true;
  }
  bool ran_tasks = false;
  intake(ran_tasks);
  abort_everything(absl::UnavailableError("the server is shutting down"));
  publish(false);
}

void Engine::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const auto has_input = [this] {
    return inbox_.stopping || !inbox_.requests.empty() || !inbox_.cancels.empty() ||
           inbox_.drain_due || inbox_.woken || !inbox_.tasks.empty() || !inbox_.abort.ok();
  };
  int64_t due_us = std::min(sessions_.next_due_us(), first_deadline_us());
  if (cache_.is_indexing()) due_us = std::min(due_us, clock_.now_us() + kIndexPollUs);
  if (due_us == kNever) return wake_.wait(lock, has_input);
  const int64_t us = std::max<int64_t>(due_us - clock_.now_us(), 0);
  wake_.wait_for(lock, std::chrono::microseconds(us), has_input);
}

int64_t Engine::first_deadline_us() const {
  int64_t first_us = kNever;
  for (const auto& [id, sequence] : sequences_) {
    const int64_t deadline_us = sequence->request().deadline_us;
    if (deadline_us != 0) first_us = std::min(first_us, deadline_us);
  }
  return first_us;
}

bool Engine::step() {
  const base::NoWaitScope no_wait;
  kv_us_ = 0;
  bool ran_tasks = false;
  bool worked = intake(ran_tasks);
  const int64_t begin_us = clock_.now_us();
  worked |= expire();
  {
    const KvTime time(*this);
    worked |= follow_restores(ran_tasks);
  }
  choose_eligible();
  const BatchPlan plan = Scheduler().plan(
      eligible_, running_, {config_.max_num_batched_tokens, config_.max_num_seqs}, cache_);
  if (!plan.empty()) {
    worked = true;
    apply(plan);
    build_batch(plan);
    if (!rows_.empty()) {
      publish(true);
      metrics_.plan_seconds.Observe(seconds(clock_.now_us() - begin_us));
      run_batch();
      ++n_steps_;
      last_step_us_ = clock_.now_us();
      metrics_.steps.Increment();
      metrics_.step_seconds.Observe(seconds(last_step_us_ - begin_us));
      metrics_.kv_engine_seconds.Observe(seconds(kv_us_));
    }
  }
  if (worked) publish(false);
  return worked;
}

// Takes what other threads have left. True when there was something.
bool Engine::intake(bool& ran_tasks) {
  Inbox taken;
  {
    std::lock_guard lock(mutex_);
    std::swap(taken.requests, inbox_.requests);
    std::swap(taken.cancels, inbox_.cancels);
    std::swap(taken.drain_due, inbox_.drain_due);
    std::swap(taken.tasks, inbox_.tasks);
    inbox_.woken = false;
    std::swap(taken.abort, inbox_.abort);
  }
  for (Request& request : taken.requests) {
    const SeqId id(next_seq_id_++);
    by_request_.emplace(request.id, id);
    auto sequence = std::make_unique<Sequence>(id, std::move(request), config_.end_ids);
    Sequence& added = *sequence;
    sequences_.emplace(id, std::move(sequence));
    waiting_.push_back(&added);
    if (!added.request().session.empty()) {
      sessions_.begin({added.request().salt, added.request().session}, added.scope(),
                      {added.request().keep_priority, added.request().keep_ttl_us});
    }
    const SamplingParams& sampling = added.request().sampling;
    if (sampling.max_tokens == 0 && !(sampling.n_prompt_logprobs >= 0 && added.prompt_len() > 1)) {
      finish(id, FinishReason::kLength);  // nothing of it has to be computed
    }
  }
  for (const auto& [request, reason] : taken.cancels) {
    const auto it = by_request_.find(request);
    if (it != by_request_.end()) finish(it->second, reason);
  }
  if (taken.drain_due) refuse_queued();
  if (!taken.abort.ok()) abort_everything(taken.abort);
  for (Task& task : taken.tasks) task(cache_, sessions_);
  ran_tasks = !taken.tasks.empty();
  return !taken.tasks.empty() || !taken.requests.empty() || !taken.cancels.empty() ||
         taken.drain_due || !taken.abort.ok();
}

void Engine::abort_everything(const absl::Status& why) {
  std::vector<SeqId> ids;
  for (const auto& [id, sequence] : sequences_) ids.push_back(id);
  finish_all(std::move(ids), why);
}

// Ends what waits and has never run, except the choices of an answer of which another has.
void Engine::refuse_queued() {
  std::vector<SeqId> ids;
  for (const Sequence* sequence : waiting_) {
    if (sequence->first_planned_us < 0 && !sequence->group_has_begun) ids.push_back(sequence->id());
  }
  finish_all(std::move(ids), absl::UnavailableError("the server is shutting down"));
}

void Engine::finish_all(std::vector<SeqId> ids, const absl::Status& why) {
  std::ranges::sort(ids);
  for (const SeqId id : ids) finish(id, FinishReason::kError, why);
}

// Ends what is past its deadline. True when there was something.
bool Engine::expire() {
  const int64_t now_us = clock_.now_us();
  if (now_us < first_deadline_us()) return false;
  std::vector<SeqId> late;
  for (const std::vector<Sequence*>* list : {&waiting_, &running_}) {
    for (const Sequence* sequence : *list) {
      const int64_t deadline_us = sequence->request().deadline_us;
      if (deadline_us != 0 && now_us >= deadline_us) late.push_back(sequence->id());
    }
  }
  for (const SeqId id : late) {
    finish(id, FinishReason::kError,
           absl::DeadlineExceededError("the request took longer than its time limit"));
  }
  return !late.empty();
}

void Engine::apply(const BatchPlan& plan) {
  for (const SeqId id : plan.returns) {
    const KvTime time(*this);
    cache_.release(sequences_.at(id)->stop(SeqState::kWaiting));
  }
  for (const SeqId id : plan.preempts) preempt(id);
  for (const Reject& reject : plan.rejects) {
    finish(reject.id, FinishReason::kError, base::invalid_argument("{}", reject.why));
  }
  // All new leases first: what a later item has found must not be evicted for an earlier one.
  for (const BatchItem& item : plan.items) {
    if (item.is_new) start(*sequences_.at(item.id), item);
  }
  const KvTime time(*this);
  begin_restores(plan);
}

// While the SSD's folder is still being read after a start, a sequence may find more by waiting; at
// most as long as computing its prompt would take.
void Engine::choose_eligible() {
  eligible_ = waiting_;
  if (waiting_.empty() || !cache_.is_indexing()) return;
  const int64_t now_us = clock_.now_us();
  std::erase_if(eligible_, [&](const Sequence* sequence) {
    const double waited_s = seconds(now_us - sequence->request().arrival_us);
    return waited_s < cache_.cost().prefill_s(0, sequence->n_tokens());
  });
}

bool Engine::follow_restores(bool ran_tasks) {
  bool worked = cache_.poll();
  if (worked || ran_tasks || clock_.now_us() >= sessions_.next_due_us()) worked |= sessions_.tend();
  for (const std::vector<Sequence*>* list : {&running_, &waiting_}) {
    for (Sequence* sequence : *list) worked |= sequence->lease() && follow_restore(*sequence);
  }
  return worked;
}

// True when the sequence has jumped over what came up.
bool Engine::follow_restore(Sequence& sequence) {
  if (!sequence.lease().pending() && !sequence.has_tail()) return false;
  if (sequence.lease().pending()) {
    cache_.rebalance(sequence.lease(), sequence.tokens(), sequence.computed_len());
  }
  if (!sequence.follow_restore(sequence.lease().pending())) return false;
  const cache::UseCache use =
      sequence.was_preempted() ? cache::UseCache::kRecompute : cache::UseCache::kYes;
  sequence.add_restored(cache_.finish_restore(sequence.lease(), use));
  cache_.commit(sequence.lease(), sequence.tokens(), sequence.computed_len());
  return true;
}

// After all leases of the plan are taken, since the blocks that a restore takes may be what another
// of them has found.
void Engine::begin_restores(const BatchPlan& plan) {
  if (!cache_.has_tiers()) return;
  int32_t n_queued = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->is_prefill()) n_queued += sequence->n_pending();
  }
  for (const BatchItem& item : plan.items) {
    if (!item.is_new) continue;
    Sequence& sequence = *sequences_.at(item.id);
    if (sequence.use_cache() == cache::UseCache::kNo || sequence.lease().pending()) continue;
    cache_.restore(sequence.lease(), sequence.tokens(), n_queued - sequence.n_pending());
    (void)sequence.follow_restore(sequence.lease().pending());
  }
  for (const SeqId id : plan.restores) {
    Sequence& sequence = *sequences_.at(id);
    sequence.was_looked_for = true;
    cache::PrefixLease lease = cache_.restore_early(sequence.scope(), sequence.tokens(), n_queued);
    if (!lease) continue;
    sequence.hold(std::move(lease));
    (void)sequence.follow_restore(sequence.lease().pending());
  }
}

void Engine::preempt(SeqId id) {
  Sequence& sequence = *sequences_.at(id);
  free_slots_.push_back(sequence.slot());
  {
    const KvTime time(*this);
    cache_.release(sequence.stop(SeqState::kPreempted));
  }
  std::erase(running_, &sequence);
  waiting_.push_back(&sequence);
  metrics_.requests.preempt(sequence.prompt_len());
  ++n_preemptions_;
  metrics_.preemptions.Increment();
}

void Engine::start(Sequence& sequence, const BatchItem& item) {
  const int64_t now_us = clock_.now_us();
  {
    const KvTime time(*this);
    if (sequence.lease()) {
      cache_.adopt(sequence.lease(), sequence.tokens(), sequence.use_cache());
    } else {
      sequence.hold(cache_.acquire(sequence.scope(), sequence.tokens(), sequence.use_cache()));
    }
  }
  CHECK_GE(sequence.computed_len(), item.start);
  for (const cache::BlockCopy& copy : sequence.lease().copies()) {
    runner_.copy_block(copy.from, copy.to);
  }
  CHECK(!free_slots_.empty());
  sequence.start(free_slots_.back());
  free_slots_.pop_back();
  std::erase(waiting_, &sequence);
  running_.push_back(&sequence);
  metrics_.requests.run(sequence.prompt_len());
  if (sequence.first_planned_us >= 0) return;
  sequence.first_planned_us = now_us;
  for (Sequence* other : waiting_) {
    if (sequence.request().group != RequestId() &&
        other->request().group == sequence.request().group) {
      other->group_has_begun = true;
    }
  }
  metrics_.queue_seconds.Observe(seconds(now_us - sequence.request().arrival_us));
}

void Engine::build_batch(const BatchPlan& plan) {
  rows_.clear();
  step_seqs_.clear();
  draws_.clear();
  draw_targets_.clear();
  batch_.clear();
  {
    const KvTime time(*this);
    for (const BatchItem& item : plan.items) {
      Sequence& sequence = *sequences_.at(item.id);
      // A lease may have found a part of a block more.
      if (!item.is_new) CHECK_EQ(sequence.computed_len(), item.start);
      // What comes up from below is not computed.
      const int32_t count = std::min(item.count, sequence.n_pending());
      if (count <= 0) continue;
      CHECK(cache_.try_extend(sequence.lease(), sequence.computed_len() + count));
      batch_.emplace_back(&sequence, count);
    }
  }
  for (const auto& [sequence, count] : batch_) {
    sequence->last_planned_step = n_steps_;
    add_rows(*sequence, count);
  }
}

void Engine::add_rows(Sequence& sequence, int32_t count) {
  const auto row_begin = static_cast<int32_t>(rows_.size());
  const int32_t start = sequence.computed_len();
  step_seqs_.push_back({row_begin, count, start, sequence.lease().tables()});
  for (int32_t i = 0; i < count; ++i) {
    const int32_t position = start + i;
    const bool is_last = position + 1 == sequence.n_tokens();
    model::StepRow row;
    row.token = is_last && sequence.last_token_in_slot()
                    ? -1
                    : sequence.tokens()[static_cast<size_t>(position)];
    row.slot = sequence.slot();
    row.position = position;
    row.adapter = sequence.request().adapter;
    if (is_last && !sequence.is_full()) {
      row.want = model::Want::kSample;
      draws_.push_back({row_begin + i, sequence.slot(), sequence.draw()});
      draw_targets_.push_back({&sequence, false});
    } else if (sequence.wants_logprob(position)) {
      row.want = model::Want::kLogprob;
      draws_.push_back({row_begin + i, sequence.slot(), sequence.prompt_logprob(position)});
      draw_targets_.push_back({&sequence, true});
    }
    rows_.push_back(row);
  }
}

void Engine::run_batch() {
  const int64_t begin_us = clock_.now_us();
  const model::Ticket step = runner_.forward({rows_, step_seqs_});
  const int64_t forward_us = clock_.now_us();
  const model::Ticket draws = runner_.sample(step, {draws_});
  const std::span<const ops::SampleResult> results = runner_.fetch(draws);
  const int64_t sample_us = clock_.now_us();
  commit_batch(forward_us - begin_us);
  handle_results(results);  // which ends sequences: batch_ is not looked at again
  for (const SeqId id : prompt_only_done_) finish(id, FinishReason::kLength);
  const auto n_rows = static_cast<double>(rows_.size());
  metrics_.computed_tokens.Increment(n_rows);
  metrics_.step_rows.Observe(n_rows);
  metrics_.inter_token_seconds.flush();
  metrics_.forward_seconds.Observe(seconds(forward_us - begin_us));
  metrics_.sample_seconds.Observe(seconds(sample_us - forward_us));
  metrics_.handle_seconds.Observe(seconds(clock_.now_us() - sample_us));
}

void Engine::commit_batch(int64_t forward_us) {
  const KvTime time(*this);
  prompt_only_done_.clear();
  for (const auto& [sequence, count] : batch_) {
    if (sequence->is_prefill()) {
      cache_.observe_prefill(sequence->computed_len(), count,
                             forward_us * count / std::ssize(rows_));
    }
    sequence->advance(count);
    cache_.commit(sequence->lease(), sequence->tokens(), sequence->computed_len());
    if (sequence->request().sampling.max_tokens == 0 && sequence->n_pending() == 0) {
      prompt_only_done_.push_back(sequence->id());
    }
  }
}

void Engine::handle_results(std::span<const ops::SampleResult> results) {
  CHECK_EQ(results.size(), draw_targets_.size());
  const int64_t now_us = clock_.now_us();
  for (size_t i = 0; i < results.size(); ++i) {
    Sequence& sequence = *draw_targets_[i].sequence;
    if (draw_targets_[i].is_prompt) {
      sequence.request().sink->push(event_of(sequence, TokenEvent::Kind::kPrompt, results[i]));
    } else {
      handle_token(sequence, results[i], now_us);
    }
  }
}

void Engine::handle_token(Sequence& sequence, const ops::SampleResult& result, int64_t now_us) {
  if (result.token < 0) return finish(sequence.id(), FinishReason::kError, why_no_token(sequence));
  const bool ends = sequence.is_stop(result.token);
  sequence.append(result.token);
  sequence.set_last_token_in_slot(true);
  metrics_.generated_tokens.Increment();
  if (sequence.last_token_us < 0) {
    observe_first_token(sequence, now_us);
  } else {
    metrics_.inter_token_seconds.add(seconds(now_us - sequence.last_token_us));
  }
  sequence.last_token_us = now_us;
  if (ends) return finish(sequence.id(), FinishReason::kStop, {}, &result);
  if (sequence.is_full()) return finish(sequence.id(), FinishReason::kLength, {}, &result);
  sequence.request().sink->push(event_of(sequence, TokenEvent::Kind::kToken, result));
}

TokenEvent Engine::event_of(const Sequence& sequence, TokenEvent::Kind kind,
                            const ops::SampleResult& result) {
  TokenEvent event;
  event.kind = kind;
  event.result = result;
  event.usage = sequence.usage();
  return event;
}

void Engine::finish(SeqId id, FinishReason reason, absl::Status error,
                    const ops::SampleResult* last) {
  const auto it = sequences_.find(id);
  CHECK(it != sequences_.end());
  Sequence& sequence = *it->second;
  if (sequence.state() == SeqState::kRunning) {
    free_slots_.push_back(sequence.slot());
    metrics_.requests.finish_running(reason, sequence.prompt_len());
  } else {
    metrics_.requests.finish_waiting(reason);
  }
  {
    const KvTime time(*this);
    cache_.release(sequence.stop(SeqState::kFinished));
  }
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
  by_request_.erase(sequence.request().id);
  if (!sequence.request().session.empty()) {
    // What was computed: the last token's KV never is.
    const KvTime time(*this);
    sessions_.end({sequence.request().salt, sequence.request().session}, sequence.tokens());
  }
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    observe_finished(sequence);
  }
  std::array<TokenEvent, 2> events;  // the last token of an answer comes with its end
  const bool with_token = last != nullptr && reason == FinishReason::kLength;
  if (with_token) events[0] = event_of(sequence, TokenEvent::Kind::kToken, *last);
  TokenEvent& event = events[1];
  event.kind = TokenEvent::Kind::kFinish;
  event.reason = reason;
  if (last != nullptr && !with_token) event.stop_token = last->token;
  event.usage = sequence.usage();
  event.error = std::move(error);
  const std::shared_ptr<TokenSink> sink = sequence.request().sink;
  sequences_.erase(it);
  {
    std::lock_guard lock(mutex_);
    --n_live_;
  }
  sink->push_together(std::span(events).last(with_token ? 2 : 1));
}

void Engine::observe_first_token(Sequence& sequence, int64_t now_us) {
  sequence.first_token_us = now_us;
  metrics_.prompt_tokens.Increment(sequence.prompt_len());
  metrics_.cached_tokens.Increment(sequence.usage().cached_tokens);
  observe_saved(sequence);
  metrics_.ttft_seconds.Observe(seconds(now_us - sequence.request().arrival_us));
  metrics_.prefill_seconds.Observe(seconds(now_us - sequence.first_planned_us));
}

void Engine::add_to_trace(const Sequence& sequence) {
  if (config_.trace == nullptr) return;
  const Request& request = sequence.request();
  // One that the queue has no room for is counted there.
  (void)config_.trace->add({.arrival_us = request.arrival_us,
                            .tokens = sequence.tokens(),
                            .prompt_len = sequence.prompt_len(),
                            .salt = request.salt,
                            .adapter = request.adapter_key,
                            .tenant = request.tenant,
                            .session = request.session,
                            .priority = request.keep_priority});
}

// What was found lies at the prompt's beginning, that of the device first.
void Engine::observe_saved(const Sequence& sequence) {
  const Usage usage = sequence.usage();
  double saved_s = 0;
  int32_t begin = 0;
  for (size_t tier = 0; tier < usage.cached_by_tier.size(); ++tier) {
    const int32_t end = begin + usage.cached_by_tier[tier];
    const double tier_s = cache_.cost().prefill_s(begin, end);
    metrics_.prefill_saved_seconds[tier]->Increment(tier_s);
    saved_s += tier_s;
    begin = end;
  }
  metrics_.tenants.add_saved(sequence.request().tenant, saved_s);
}

void Engine::observe_finished(const Sequence& sequence) {
  add_to_trace(sequence);
  if (sequence.first_planned_us < 0) return;  // nothing of it had to be computed
  const int64_t now_us = clock_.now_us();
  metrics_.e2e_seconds.Observe(seconds(now_us - sequence.request().arrival_us));
  metrics_.run_seconds.Observe(seconds(now_us - sequence.first_planned_us));
  metrics_.prompt_len.Observe(sequence.prompt_len());
  metrics_.output_len.Observe(sequence.n_output());
  if (sequence.first_token_us < 0) return;
  metrics_.decode_seconds.Observe(seconds(now_us - sequence.first_token_us));
  if (sequence.n_output() < 2) return;
  metrics_.per_token_seconds.Observe(seconds(sequence.last_token_us - sequence.first_token_us) /
                                     (sequence.n_output() - 1));
}

void Engine::publish(bool computing) {
  EngineStats stats;
  stats.n_running = static_cast<int32_t>(running_.size());
  stats.n_waiting = static_cast<int32_t>(waiting_.size());
  stats.n_steps = n_steps_;
  stats.n_preemptions = n_preemptions_;
  stats.last_step_us = last_step_us_;
  stats.cache = cache_.stats();
  stats.n_sessions = sessions_.n_by_state();
  if (computing) {
    stats.step_rows = static_cast<int32_t>(rows_.size());
    stats.step_seqs = static_cast<int32_t>(batch_.size());
  }
  metrics_.kv_usage_ratio.Set(static_cast<double>(stats.cache.n_in_use + stats.cache.n_promised) /
                              stats.cache.n_blocks);
  metrics_.kv_blocks_free.Set(stats.cache.n_free);
  metrics_.kv_blocks_cached.Set(stats.cache.n_cached);
  metrics_.kv_blocks_in_use.Set(stats.cache.n_in_use);
  metrics_.kv_blocks_promised.Set(stats.cache.n_promised);
  metrics_.kv_evictions.Increment(static_cast<double>(stats.cache.n_evicted - n_evictions_seen_));
  n_evictions_seen_ = stats.cache.n_evicted;
  const int64_t now_us = clock_.now_us();
  std::lock_guard lock(mutex_);
  stats_ = stats;
  progress_us_ = now_us;
}

}  // namespace pagoda::engine
