// The engine: one thread that owns every sequence, the scheduler, the KV cache and the model
// runner.
//
//   submit, cancel ─▶ inbox ─▶ step(): intake ▶ plan ▶ apply ▶ forward ▶ sample ▶ fetch ▶ handle
//                                                                                        │
//                                                              TokenSink of each request ◀┘
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "cache/kv_cache.h"
#include "cache/session.h"
#include "model/model_runner.h"
#include "server/engine/metrics.h"
#include "server/engine/request.h"
#include "server/engine/scheduler.h"
#include "server/engine/sequence.h"

namespace pagoda::cache {
class TraceWriter;
}

namespace pagoda::engine {

struct EngineConfig {
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;
  int32_t max_queue = 256;       // requests in the inbox or waiting
  int32_t max_model_len = 0;     // prompt and answer together; no more than the pool holds
  std::vector<TokenId> end_ids;  // eos and its like
  cache::SessionOptions sessions;
  cache::TraceWriter* trace = nullptr;  // borrowed; null: no trace is written
};

struct EngineStats {
  int32_t n_running = 0;
  int32_t n_waiting = 0;
  int64_t n_steps = 0;
  int64_t n_preemptions = 0;
  int64_t last_step_us = 0;  // Clock::now_us at the end of the last step; 0 before the first
  cache::KvCacheStats cache;
  std::array<int64_t, 4> n_sessions{};  // by SessionState

  // Of the moment of the call.
  int32_t n_live = 0;       // submitted and not finished
  int64_t progress_us = 0;  // when the engine last did something, or got work after it had none
  int32_t step_rows = 0;    // of the step that is being computed; 0: none is
  int32_t step_seqs = 0;
};

// How long the engine has been at what it does now; 0 while there is nothing to do.
inline int64_t step_age_us(const EngineStats& stats, int64_t now_us) {
  return stats.n_live == 0 || now_us < stats.progress_us ? 0 : now_us - stats.progress_us;
}

class Engine {
 public:
  // Borrows all of them.
  Engine(EngineConfig config, model::ModelRunner& runner, cache::KvCache& cache,
         const base::Clock& clock, Metrics& metrics);
  ~Engine();

  // Any thread. The request's ids are in the vocabulary and its sampling in range.
  // kInvalidArgument: the prompt is empty, prompt and max_tokens exceed max_model_len, or no token
  // may be drawn (check_drawable).
  // kResourceExhausted: the queue is full. kUnavailable: draining.
  absl::Status submit(Request request);
  // Any thread; an unknown or finished id is no error. The sequence leaves the next planned batch
  // and its sink gets kFinish with the reason: kAbort when its client left, kStop when its text
  // reached a stop string.
  void cancel(RequestId id, FinishReason reason = FinishReason::kAbort);
  // Any thread. No request is accepted from now on. Those that have run go on to their end, and so
  // does an answer of which one has; those that never ran get kFinish, kError with kUnavailable.
  void drain();
  // Any thread. Ends what waits or runs: each sink gets kFinish, kError and this status.
  void abort_all(absl::Status why);
  // Any thread. Counts as they were when a step began to compute or the last one ended.
  EngineStats stats() const;
  // Any thread. Runs the task on the engine thread between two steps; it may use the cache, and
  // must be short. kUnavailable, and the task is dropped unrun, once the engine has stopped.
  using Task = absl::AnyInvocable<void(cache::KvCache& cache, cache::SessionTable& sessions)>;
  absl::Status post(Task task);
  // Any thread: something that step() should look at has happened below the cache.
  void wake();
  // Any thread: nothing waits or runs and the inbox is empty.
  bool idle() const;

  // The engine thread, or a test in its place. One step; false when there was nothing to do.
  bool step();
  // Steps until stop(), asleep while there is nothing to do. Called by the engine thread. All sinks
  // have their end when it returns.
  void run();
  // Any thread. run() ends after the current step: what still waits or runs gets kFinish, kError.
  void stop();

  const EngineConfig& config() const { return config_; }

 private:
  struct Inbox {
    std::vector<Request> requests;
    std::vector<std::pair<RequestId, FinishReason>> cancels;
    bool draining = false;
    bool drain_due = false;  // draining has begun, and the engine thread hasn't seen it yet
    bool stopping = false;
    bool woken = false;
    bool closed = false;  // no task is taken any more
    std::vector<Task> tasks;
    absl::Status abort;  // not ok: end everything
  };

  // Adds its processor time to kv_us_: what the machine gave to others meanwhile is not its.
  // Time inside another one counts twice: none is.
  class KvTime {
   public:
    explicit KvTime(Engine& engine) : engine_(engine), begin_us_(engine.clock_.thread_us()) {}
    ~KvTime() { engine_.kv_us_ += engine_.clock_.thread_us() - begin_us_; }

   private:
    Engine& engine_;
    const int64_t begin_us_;
  };

  bool intake(bool& ran_tasks);
  // Asleep until there is something to do, or it is time to move an idle session.
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  int64_t first_deadline_us() const;  // of all sequences; the far future: none has one
  void abort_everything(const absl::Status& why);
  void refuse_queued();
  void finish_all(std::vector<SeqId> ids, const absl::Status& why);
  bool expire();
  void apply(const BatchPlan& plan);
  void preempt(SeqId id);
  // What came up from below since the last step.
  bool follow_restores(bool ran_tasks);
  void choose_eligible();
  bool follow_restore(Sequence& sequence);
  void begin_restores(const BatchPlan& plan);
  void start(Sequence& sequence, const BatchItem& item);
  void build_batch(const BatchPlan& plan);
  void add_rows(Sequence& sequence, int32_t count);
  void run_batch();
  void commit_batch(int64_t forward_us);
  void handle_results(std::span<const ops::SampleResult> results);
  void handle_token(Sequence& sequence, const ops::SampleResult& result, int64_t now_us);
  static TokenEvent event_of(const Sequence& sequence, TokenEvent::Kind kind,
                             const ops::SampleResult& result);
  // last: the draw that ended it, a token of the answer unless it is a stop token.
  void finish(SeqId id, FinishReason reason, absl::Status error = absl::OkStatus(),
              const ops::SampleResult* last = nullptr);
  void observe_first_token(Sequence& sequence, int64_t now_us);
  void observe_saved(const Sequence& sequence);
  void add_to_trace(const Sequence& sequence);
  void observe_finished(const Sequence& sequence);
  // Shows the state; `computing`: of a step that begins.
  void publish(bool computing);

  const EngineConfig config_;
  model::ModelRunner& runner_;
  cache::KvCache& cache_;
  const base::Clock& clock_;
  cache::SessionTable sessions_;  // the engine thread's alone
  Metrics& metrics_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;              // guarded by mutex_
  EngineStats stats_;        // guarded by mutex_
  int32_t n_live_ = 0;       // guarded by mutex_: requests submitted and not finished
  int64_t progress_us_ = 0;  // guarded by mutex_: see EngineStats

  // The engine thread's alone.
  // What a draw of the batch is for.
  struct Draw {
    Sequence* sequence = nullptr;
    bool is_prompt = false;  // the log probability of a prompt token
  };
  uint64_t next_seq_id_ = 1;
  int64_t n_steps_ = 0;
  int64_t n_preemptions_ = 0;
  int64_t n_evictions_seen_ = 0;
  int64_t last_step_us_ = 0;
  int64_t kv_us_ = 0;  // of this step: processor time on the cache and its transfers
  absl::flat_hash_map<SeqId, std::unique_ptr<Sequence>> sequences_;
  absl::flat_hash_map<RequestId, SeqId> by_request_;
  std::vector<Sequence*> waiting_;   // preempted ones among them
  std::vector<Sequence*> eligible_;  // of waiting_: may start now
  std::vector<Sequence*> running_;   // holds a lease and a slot
  std::vector<SlotId> free_slots_;
  std::vector<std::pair<Sequence*, int32_t>> batch_;  // sequences of the step and their rows
  std::vector<Draw> draw_targets_;                    // [draws_.size()]
  std::vector<SeqId> prompt_only_done_;
  std::vector<model::StepRow> rows_;
  std::vector<model::StepSeq> step_seqs_;
  std::vector<model::SampleRequest> draws_;
};

}  // namespace pagoda::engine
