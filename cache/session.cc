#include "cache/session.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda::cache {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Copies of a path that moves down should be done by then; what is not stays above.
constexpr int64_t kLeaveTimeUs = 60'000'000;

absl::Status unknown(const SessionKey& key) {
  return base::status_error(absl::StatusCode::kNotFound, "there is no session \"{}\"", key.id);
}

}  // namespace

SessionTable::SessionTable(SessionOptions options, KvCache& cache, const base::Clock& clock)
    : options_(options), cache_(cache), clock_(clock) {}

SessionTable::~SessionTable() = default;

SessionTable::Session* SessionTable::lookup(const SessionKey& key) {
  const auto it = sessions_.find(key);
  return it == sessions_.end() ? nullptr : it->second.get();
}

void SessionTable::begin(const SessionKey& key, const CacheScope& scope,
                         const Retention& retention) {
  Session* session = lookup(key);
  if (session == nullptr) {
    if (sessions_.size() >= options_.max_sessions) forget_oldest();
    session = sessions_.emplace(key, std::make_unique<Session>()).first->second.get();
    keys_.insert(key);
  } else if (session->n_active == 0) {
    idle_.erase({session->last_active_us, key});
  }
  session->scope = scope;
  session->priority = retention.priority;
  const int64_t now_us = clock_.now_us();
  session->retention_until_us = retention.ttl_us == 0 ? 0 : now_us + retention.ttl_us;
  ++session->n_active;
  ++session->n_requests;
  session->last_active_us = now_us;
  session->stage = SessionState::kDevice;
  session->leaving_until_us = 0;
  schedule(key, *session);
}

void SessionTable::end(const SessionKey& key, std::span<const int32_t> tokens) {
  Session* session = lookup(key);
  if (session == nullptr) return;
  CHECK_GT(session->n_active, 0);
  session->last_active_us = clock_.now_us();
  if (--session->n_active == 0) idle_.insert({session->last_active_us, key});
  // What is on its way up belongs to the text that was.
  cache_.release(std::move(session->coming_up));
  session->tokens.assign(tokens.begin(), tokens.end());
  if (session->priority != 50) {
    cache_.set_priority(session->scope, session->tokens, static_cast<uint8_t>(session->priority));
  }
  if (session->is_pinned) renew_pin(*session);
  schedule(key, *session);
}

// Puts it where its next move is due.
void SessionTable::schedule(const SessionKey& key, Session& session) {
  if (session.due_us != 0) due_.erase({session.due_us, key});
  session.due_us = 0;
  count(session, session.n_active > 0 ? SessionState::kActive : session.stage);
  if (session.n_active > 0) return;
  int64_t due_us = kNever;
  if (cache_.has_tiers() && !session.is_pinned) {
    if (session.stage == SessionState::kDevice) {
      due_us = session.last_active_us + first_idle_us();
    } else if (session.stage == SessionState::kHost) {
      due_us = session.last_active_us + options_.idle_ssd_us;
    }
  }
  if (session.retention_until_us != 0) due_us = std::min(due_us, session.retention_until_us);
  if (due_us == kNever) return;
  session.due_us = due_us;
  due_.insert({due_us, key});
}

// Without a host tier there is nothing between the device and the SSD.
int64_t SessionTable::first_idle_us() const {
  return cache_.has_host() ? std::min(options_.idle_host_us, options_.idle_ssd_us)
                           : options_.idle_ssd_us;
}

int64_t SessionTable::next_due_us() const {
  // What is under way is looked at whenever a transfer ends.
  return due_.empty() ? kNever : due_.begin()->first;
}

bool SessionTable::tend() {
  bool changed = false;
  const int64_t now_us = clock_.now_us();
  while (!due_.empty() && due_.begin()->first <= now_us) {
    const SessionKey key = due_.begin()->second;
    Session& session = *lookup(key);
    if (session.retention_until_us != 0 && session.retention_until_us <= now_us) {
      session.retention_until_us = 0;
      if (session.priority != 50) cache_.set_priority(session.scope, session.tokens, 50);
      session.priority = 50;
    }
    const int64_t idle_us = now_us - session.last_active_us;
    if (cache_.has_tiers() && !session.is_pinned) {
      if (idle_us >= options_.idle_ssd_us) {
        move_down(session, SessionState::kSsd);
      } else if (idle_us >= first_idle_us() && session.stage == SessionState::kDevice) {
        move_down(session, SessionState::kHost);
      }
      if (session.leaving_until_us != 0) moving_.insert(key);
    }
    schedule(key, session);
    changed = true;
  }
  for (auto it = moving_.begin(); it != moving_.end();) {
    Session& session = *lookup(*it);
    changed |= follow_prefetch(session);
    if (session.leaving_until_us != 0) changed |= free_above(session);
    const bool is_over = session.leaving_until_us == 0 && !session.coming_up;
    it = is_over ? moving_.erase(it) : std::next(it);
  }
  return changed;
}

void SessionTable::move_down(Session& session, SessionState stage) {
  session.stage = stage;
  // To all tiers at once: a copy to the SSD is made from the device, and later it has left that.
  cache_.copy_path_down(session.scope, session.tokens);
  session.leaving_until_us = clock_.now_us() + kLeaveTimeUs;
}

// Frees what has a copy below by now. True when something was.
bool SessionTable::free_above(Session& session) {
  const int32_t n_freed =
      cache_.free_path(session.scope, session.tokens, session.stage == SessionState::kSsd);
  const std::array<int32_t, 4> where = cache_.residency(session.scope, session.tokens);
  const bool above = where[0] > 0 || (session.stage == SessionState::kSsd && where[1] > 0);
  if (!above || clock_.now_us() >= session.leaving_until_us || session.n_active > 0) {
    session.leaving_until_us = 0;
  }
  return n_freed > 0;
}

void SessionTable::start_prefetch(const SessionKey& key, Session& session) {
  if (session.coming_up || !cache_.has_tiers() || session.tokens.empty()) return;
  session.leaving_until_us = 0;
  PrefixLease lease = cache_.hold_path(session.scope, session.tokens);
  if (!cache_.restore_all(lease, session.tokens)) return;
  session.coming_up = std::move(lease);
  moving_.insert(key);
}

bool SessionTable::follow_prefetch(Session& session) {
  if (!session.coming_up) return false;
  const auto pending = session.coming_up.pending();
  if (pending && pending->landed > pending->begin) return false;  // more comes
  if (pending && pending->begin > session.coming_up.ready_len()) {
    // A block in the middle did not come; what is behind it is of no use without it.
  } else if (pending) {
    const int32_t end = pending->end;
    (void)cache_.finish_restore(session.coming_up, UseCache::kRecompute);
    cache_.commit(session.coming_up, session.tokens, end);
  }
  cache_.release(std::move(session.coming_up));
  session.stage = SessionState::kDevice;
  if (session.counted != SessionState::kActive) count(session, session.stage);
  if (session.is_pinned) renew_pin(session);
  return true;
}

void SessionTable::renew_pin(Session& session) {
  PrefixLease pin = cache_.hold_path(session.scope, session.tokens);
  cache_.release(std::exchange(session.pin, std::move(pin)));
}

absl::Status SessionTable::pin(const SessionKey& key) {
  Session* session = lookup(key);
  if (session == nullptr) return unknown(key);
  if (session->is_pinned) return absl::OkStatus();
  int64_t n_tokens = std::ssize(session->tokens);
  for (const auto& [other, each] : sessions_) {
    if (each->is_pinned) n_tokens += std::ssize(each->tokens);
  }
  if (n_tokens > cache_.max_tokens() / 2) {
    return base::status_error(absl::StatusCode::kResourceExhausted,
                              "with this one, pinned sessions would hold {} tokens, more than half "
                              "of the {} that the pool has",
                              n_tokens, cache_.max_tokens());
  }
  session->is_pinned = true;
  renew_pin(*session);
  start_prefetch(key, *session);
  schedule(key, *session);
  return absl::OkStatus();
}

absl::Status SessionTable::unpin(const SessionKey& key) {
  Session* session = lookup(key);
  if (session == nullptr) return unknown(key);
  session->is_pinned = false;
  cache_.release(std::move(session->pin));
  schedule(key, *session);
  return absl::OkStatus();
}

absl::Status SessionTable::prefetch(const SessionKey& key) {
  Session* session = lookup(key);
  if (session == nullptr) return unknown(key);
  start_prefetch(key, *session);
  return absl::OkStatus();
}

absl::Status SessionTable::offload(const SessionKey& key) {
  Session* session = lookup(key);
  if (session == nullptr) return unknown(key);
  if (!cache_.has_tiers()) {
    return absl::FailedPreconditionError(
        "there is no tier below the device; start the server with --kv-host-size or --kv-ssd-path");
  }
  if (session->n_active > 0 || session->is_pinned) {
    return base::status_error(absl::StatusCode::kFailedPrecondition, "the session \"{}\" is {}",
                              key.id, session->is_pinned ? "pinned" : "active");
  }
  move_down(*session, SessionState::kSsd);
  moving_.insert(key);
  schedule(key, *session);
  return absl::OkStatus();
}

absl::Status SessionTable::drop(const SessionKey& key) {
  Session* session = lookup(key);
  if (session == nullptr) return unknown(key);
  if (session->n_active > 0) {
    return base::status_error(absl::StatusCode::kFailedPrecondition, "the session \"{}\" is active",
                              key.id);
  }
  cache_.release(std::move(session->pin));
  cache_.release(std::move(session->coming_up));
  cache_.drop_path(session->scope, session->tokens);
  forget(key);
  return absl::OkStatus();
}

bool SessionTable::drop_salt(const std::string& salt) {
  std::vector<SessionKey> idle;
  for (auto it = keys_.lower_bound({salt, ""}); it != keys_.end() && it->salt == salt; ++it) {
    if (lookup(*it)->n_active == 0) idle.push_back(*it);
  }
  for (const SessionKey& key : idle) {
    Session& session = *lookup(key);
    cache_.release(std::move(session.pin));
    cache_.release(std::move(session.coming_up));
    forget(key);
  }
  return cache_.drop_salt(salt);
}

void SessionTable::forget(const SessionKey& key) {
  const auto it = sessions_.find(key);
  Session& session = *it->second;
  count(session, std::nullopt);
  if (session.due_us != 0) due_.erase({session.due_us, key});
  idle_.erase({session.last_active_us, key});
  moving_.erase(key);
  keys_.erase(key);
  sessions_.erase(it);
}

void SessionTable::forget_oldest() {
  for (const auto& [time, key] : idle_) {
    if (lookup(key)->is_pinned) continue;
    const SessionKey oldest = key;
    return forget(oldest);
  }
}

SessionView SessionTable::view(const SessionKey& key, const Session& session) const {
  SessionView view;
  view.key = key;
  view.state = session.n_active > 0 ? SessionState::kActive : session.stage;
  view.is_pinned = session.is_pinned;
  view.is_moving = session.leaving_until_us != 0 || static_cast<bool>(session.coming_up);
  view.n_requests = session.n_requests;
  view.n_tokens = static_cast<int32_t>(session.tokens.size());
  view.priority = session.priority;
  view.idle_s = session.n_active > 0
                    ? 0
                    : static_cast<double>(clock_.now_us() - session.last_active_us) * 1e-6;
  view.residency = cache_.residency(session.scope, session.tokens);
  return view;
}

std::optional<SessionView> SessionTable::find(const SessionKey& key) const {
  const auto it = sessions_.find(key);
  if (it == sessions_.end()) return std::nullopt;
  return view(key, *it->second);
}

std::vector<SessionView> SessionTable::list(const SessionKey& after, size_t most) const {
  std::vector<SessionView> views;
  for (auto it = keys_.upper_bound(after); it != keys_.end() && views.size() < most; ++it) {
    views.push_back(*find(*it));
  }
  return views;
}

std::vector<SessionKey> SessionTable::with_id(const std::string& id) const {
  std::vector<SessionKey> found;
  for (const SessionKey& key : keys_) {
    if (key.id == id) found.push_back(key);
  }
  return found;
}

void SessionTable::count(Session& session, std::optional<SessionState> state) {
  if (session.counted) --n_by_state_[static_cast<size_t>(*session.counted)];
  if (state) ++n_by_state_[static_cast<size_t>(*state)];
  session.counted = state;
}

}  // namespace pagoda::cache
