#include "cache/transfer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace pagoda::cache {

// Whoever changes what may start (a caller, or a tier's thread that reports an end) becomes the
// starter, unless there is one. The starter calls the tiers without the lock and looks again after
// each call, so nothing is missed, and a tier that answers within the call makes a loop of it and
// no recursion.
class TransferEngine::Impl : public std::enable_shared_from_this<TransferEngine::Impl> {
 public:
  Impl(TransferOptions options, DeviceMemory device, Tier* host, Tier* ssd,
       const base::Clock& clock, std::function<void()> wake, base::IoQueue* starter);

  void close();
  TransferId restore(std::vector<RestoreBlock> blocks);
  bool append(TransferId id, std::vector<RestoreBlock> blocks);
  int32_t take_back(TransferId id, int32_t n, bool is_end);
  int32_t n_waiting(TransferId id) const;
  bool offload(BlockRecord record, BlockId from, TierKind to);
  std::vector<TransferDone> poll();
  TransferStats stats() const;
  bool idle() const;

 private:
  struct Waiting {
    RestoreBlock block;
    int32_t index = 0;
  };
  struct Job {
    std::deque<Waiting> waiting;
    int32_t n_given = 0;       // ever: the index of the next block
    int32_t n_unreported = 0;  // begun, and not told by poll() yet
    bool is_ended = false;
    bool has_turn = false;  // stands in turns_
  };
  struct Offload {
    BlockRecord record;
    BlockId from;
    TierKind to = TierKind::kSsd;
  };
  enum class Next : uint8_t { kNothing, kRestore, kOffload };
  // What has been chosen to start: a restore, unless there is a record to store.
  struct Start {
    TransferDone told;  // without its status and time
    std::optional<BlockRecord> record;
  };

  Tier& tier(TierKind kind) const;
  void add(TransferId id, Job& job, const std::vector<RestoreBlock>& blocks);
  void forget_if_over(TransferId id);
  // For callers: has what may start now started elsewhere.
  void start_soon();
  void start_some();
  Next what_next() const;
  std::optional<Start> next_start();
  std::optional<Start> next_restore();
  std::optional<Start> next_offload();
  void begin(Start start);
  void finish(TransferDone told, int64_t began_us);
  void count(const TransferDone& told);

  const TransferOptions options_;
  const DeviceMemory device_;
  const std::array<Tier*, 3> tier_;  // by TierKind
  const base::Clock& clock_;
  const std::function<void()> wake_;
  base::IoQueue* const starter_;  // null: callers start

  mutable std::mutex mutex_;  // of all below; never held while a tier or wake_ is called
  std::condition_variable quiet_;
  absl::flat_hash_map<TransferId, Job> jobs_;  // those that are not over
  std::deque<TransferId> turns_;               // jobs with blocks that wait, and some that are over
  std::deque<Offload> offloads_;
  std::vector<TransferDone> done_;
  TransferStats stats_;
  uint64_t n_jobs_ = 0;
  int64_t n_restores_since_offload_ = 0;  // begun
  int32_t n_waking_ = 0;                  // calls of wake_ under way
  bool is_starting_ = false;              // a thread is the starter
  bool is_start_posted_ = false;          // to the starter's queue, and not begun there
  bool is_closing_ = false;
};

TransferEngine::Impl::Impl(TransferOptions options, DeviceMemory device, Tier* host, Tier* ssd,
                           const base::Clock& clock, std::function<void()> wake,
                           base::IoQueue* starter)
    : options_(options),
      device_(device),
      tier_{nullptr, host, ssd},
      clock_(clock),
      wake_(std::move(wake)),
      starter_(starter) {
  CHECK_GT(options_.restore_window, 0);
  CHECK_GT(options_.offload_window, 0);
}

Tier& TransferEngine::Impl::tier(TierKind kind) const {
  Tier* const tier = tier_[static_cast<size_t>(kind)];
  CHECK(tier != nullptr);
  return *tier;
}

void TransferEngine::Impl::close() {
  std::unique_lock lock(mutex_);
  is_closing_ = true;
  jobs_.clear();
  turns_.clear();
  offloads_.clear();
  quiet_.wait(lock, [this] {
    return !is_starting_ && n_waking_ == 0 && stats_.n_restores_running == 0 &&
           stats_.n_offloads_running == 0;
  });
}

TransferId TransferEngine::Impl::restore(std::vector<RestoreBlock> blocks) {
  TransferId id;
  {
    std::lock_guard lock(mutex_);
    id = TransferId(++n_jobs_);
    if (blocks.empty()) return id;  // over at once
    add(id, jobs_[id], blocks);
  }
  start_soon();
  return id;
}

bool TransferEngine::Impl::append(TransferId id, std::vector<RestoreBlock> blocks) {
  {
    std::lock_guard lock(mutex_);
    const auto it = jobs_.find(id);
    if (it == jobs_.end() || it->second.is_ended) return false;
    add(id, it->second, blocks);
  }
  start_soon();
  return true;
}

void TransferEngine::Impl::add(TransferId id, Job& job, const std::vector<RestoreBlock>& blocks) {
  for (const RestoreBlock& block : blocks) {
    tier(block.from);  // there is one
    job.waiting.push_back({block, job.n_given++});
    ++stats_.n_restores_queued[static_cast<size_t>(block.from)];
  }
  if (job.has_turn || job.waiting.empty()) return;
  job.has_turn = true;
  turns_.push_back(id);
}

int32_t TransferEngine::Impl::take_back(TransferId id, int32_t n, bool is_end) {
  std::lock_guard lock(mutex_);
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return 0;
  Job& job = it->second;
  const auto n_waiting = static_cast<int32_t>(job.waiting.size());
  const int32_t n_taken = is_end ? n_waiting : std::clamp(n, 0, n_waiting);
  const auto taken = job.waiting.end() - n_taken;
  for (auto it = taken; it != job.waiting.end(); ++it) {
    --stats_.n_restores_queued[static_cast<size_t>(it->block.from)];
  }
  job.waiting.erase(taken, job.waiting.end());
  job.is_ended |= is_end;
  forget_if_over(id);
  return n_taken;
}

int32_t TransferEngine::Impl::n_waiting(TransferId id) const {
  std::lock_guard lock(mutex_);
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? 0 : static_cast<int32_t>(it->second.waiting.size());
}

void TransferEngine::Impl::forget_if_over(TransferId id) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return;
  if (it->second.waiting.empty() && it->second.n_unreported == 0) jobs_.erase(it);
}

bool TransferEngine::Impl::offload(BlockRecord record, BlockId from, TierKind to) {
  tier(to);  // there is one
  {
    std::lock_guard lock(mutex_);
    if (static_cast<int64_t>(offloads_.size()) >= options_.max_offloads) {
      ++stats_.tiers[static_cast<size_t>(to)].n_declined;
      return false;
    }
    offloads_.push_back({std::move(record), from, to});
  }
  start_soon();
  return true;
}

std::vector<TransferDone> TransferEngine::Impl::poll() {
  std::vector<TransferDone> told;
  {
    std::lock_guard lock(mutex_);
    told.swap(done_);
    for (const TransferDone& done : told) {
      if (!done.is_restore) continue;
      --jobs_.find(done.id)->second.n_unreported;
      forget_if_over(done.id);
    }
  }
  // After the look, so that what a tier answers at once is told, with a wake, by the next.
  start_soon();
  return told;
}

TransferStats TransferEngine::Impl::stats() const {
  std::lock_guard lock(mutex_);
  TransferStats stats = stats_;
  stats.n_offloads_waiting = static_cast<int32_t>(offloads_.size());
  return stats;
}

bool TransferEngine::Impl::idle() const {
  std::lock_guard lock(mutex_);
  return stats_.n_restores_waiting() == 0 && stats_.n_restores_running == 0 && offloads_.empty() &&
         stats_.n_offloads_running == 0 && done_.empty();
}

void TransferEngine::Impl::start_soon() {
  if (starter_ == nullptr) return start_some();
  {
    std::lock_guard lock(mutex_);
    if (is_starting_ || is_start_posted_ || what_next() == Next::kNothing) return;
    is_start_posted_ = true;
  }
  starter_->run([self = shared_from_this()] {
    {
      std::lock_guard lock(self->mutex_);
      self->is_start_posted_ = false;
    }
    self->start_some();
  });
}

// A starter doesn't stay for ever while others end what it starts: once it has filled the windows
// it leaves the rest to those that are under way. They are sure to come by, since they look at
// is_starting_ under the lock after this has cleared it.
void TransferEngine::Impl::start_some() {
  const int32_t n_enough = options_.restore_window + options_.offload_window;
  std::unique_lock lock(mutex_);
  if (is_starting_) return;
  is_starting_ = true;
  for (int32_t n = 0;; ++n) {
    const bool is_any_running = stats_.n_restores_running + stats_.n_offloads_running > 0;
    if (n >= n_enough && is_any_running) break;
    std::optional<Start> start = next_start();
    if (!start.has_value()) break;
    lock.unlock();
    begin(*std::move(start));
    lock.lock();
  }
  is_starting_ = false;
  quiet_.notify_all();
}

// Restores go first. While some wait, an offload may begin only when no other is under way and a
// windowful of restores has begun since the last: slow, but never standing still.
TransferEngine::Impl::Next TransferEngine::Impl::what_next() const {
  if (is_closing_) return Next::kNothing;
  const bool has_offload = !offloads_.empty();
  if (stats_.n_restores_waiting() == 0) {
    const bool has_room = stats_.n_offloads_running < options_.offload_window;
    return has_offload && has_room ? Next::kOffload : Next::kNothing;
  }
  const bool is_its_turn = n_restores_since_offload_ >= options_.restore_window;
  if (has_offload && is_its_turn && stats_.n_offloads_running == 0) return Next::kOffload;
  return stats_.n_restores_running < options_.restore_window ? Next::kRestore : Next::kNothing;
}

std::optional<TransferEngine::Impl::Start> TransferEngine::Impl::next_start() {
  switch (what_next()) {
    case Next::kNothing:
      return std::nullopt;
    case Next::kRestore:
      return next_restore();
    case Next::kOffload:
      return next_offload();
  }
  return std::nullopt;
}

std::optional<TransferEngine::Impl::Start> TransferEngine::Impl::next_restore() {
  while (true) {
    CHECK(!turns_.empty());
    const TransferId id = turns_.front();
    turns_.pop_front();
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) continue;
    Job& job = it->second;
    job.has_turn = false;
    if (job.waiting.empty()) continue;
    const Waiting next = job.waiting.front();
    job.waiting.pop_front();
    ++job.n_unreported;
    if (!job.waiting.empty()) {
      job.has_turn = true;
      turns_.push_back(id);
    }
    --stats_.n_restores_queued[static_cast<size_t>(next.block.from)];
    ++stats_.n_restores_running;
    ++n_restores_since_offload_;
    Start start;
    start.told.id = id;
    start.told.is_restore = true;
    start.told.index = next.index;
    start.told.tier = next.block.from;
    start.told.block = next.block.to;
    start.told.key = next.block.key;
    return start;
  }
}

std::optional<TransferEngine::Impl::Start> TransferEngine::Impl::next_offload() {
  Offload next = std::move(offloads_.front());
  offloads_.pop_front();
  ++stats_.n_offloads_running;
  n_restores_since_offload_ = 0;
  Start start;
  start.told.tier = next.to;
  start.told.block = next.from;
  start.told.key = next.record.key;
  start.record = std::move(next.record);
  return start;
}

// What a tier holds keeps this alive: its last callback may still be on its way out when the
// engine's object has gone.
void TransferEngine::Impl::begin(Start start) {
  Tier& tier = this->tier(start.told.tier);
  const std::span<uint8_t> bytes = device_.block(start.told.block);
  const BlockKey key = start.told.key;
  Tier::Done done = [self = shared_from_this(), told = std::move(start.told),
                     began_us = clock_.now_us()](absl::Status status) mutable {
    told.status = std::move(status);
    self->finish(std::move(told), began_us);
  };
  if (start.record.has_value()) {
    tier.put(*std::move(start.record), bytes, std::move(done));
  } else {
    tier.get(key, bytes, std::move(done));
  }
}

void TransferEngine::Impl::finish(TransferDone told, int64_t began_us) {
  told.us = clock_.now_us() - began_us;
  bool must_wake = false;
  {
    std::lock_guard lock(mutex_);
    count(told);
    if (is_closing_) {
      quiet_.notify_all();
      return;
    }
    must_wake = done_.empty() && wake_ != nullptr;
    if (must_wake) ++n_waking_;
    done_.push_back(std::move(told));
  }
  if (must_wake) {
    wake_();
    std::lock_guard lock(mutex_);
    --n_waking_;
    quiet_.notify_all();
  }
  start_some();
}

void TransferEngine::Impl::count(const TransferDone& told) {
  TransferStats::OneTier& tier = stats_.tiers[static_cast<size_t>(told.tier)];
  if (told.is_restore) {
    --stats_.n_restores_running;
    if (!told.status.ok()) {
      ++tier.n_failed;
      return;
    }
    ++tier.n_restored;
    tier.restored_bytes += device_.block_bytes;
    tier.restores.add(told.us);
  } else {
    --stats_.n_offloads_running;
    if (!told.status.ok()) {
      ++tier.n_declined;
      return;
    }
    ++tier.n_offloaded;
    tier.offloaded_bytes += device_.block_bytes;
    tier.offloads.add(told.us);
  }
}

TransferEngine::TransferEngine(TransferOptions options, DeviceMemory device, Tier* host, Tier* ssd,
                               const base::Clock& clock, std::function<void()> wake,
                               base::IoQueue* starter)
    : impl_(std::make_shared<Impl>(options, device, host, ssd, clock, std::move(wake), starter)) {}

TransferEngine::~TransferEngine() { impl_->close(); }

TransferId TransferEngine::restore(std::vector<RestoreBlock> blocks) {
  return impl_->restore(std::move(blocks));
}

bool TransferEngine::append(TransferId id, std::vector<RestoreBlock> blocks) {
  return impl_->append(id, std::move(blocks));
}

int32_t TransferEngine::take_back(TransferId id, int32_t n) {
  return impl_->take_back(id, n, false);
}

int32_t TransferEngine::end(TransferId id) { return impl_->take_back(id, 0, true); }

int32_t TransferEngine::n_waiting(TransferId id) const { return impl_->n_waiting(id); }

bool TransferEngine::offload(BlockRecord record, BlockId from, TierKind to) {
  return impl_->offload(std::move(record), from, to);
}

std::vector<TransferDone> TransferEngine::poll() { return impl_->poll(); }

TransferStats TransferEngine::stats() const { return impl_->stats(); }

bool TransferEngine::idle() const { return impl_->idle(); }

}  // namespace pagoda::cache
