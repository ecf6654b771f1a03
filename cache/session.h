// Sessions: conversations that may come back. A session is an id that requests carry, the tokens of
// its last answer with all before it, and when that was. Its KV is that of the path of these
// tokens; the table moves it down when the session is idle and does with it what an operator asks.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "cache/kv_cache.h"

namespace pagoda::cache {

struct SessionOptions {
  int64_t idle_host_us = 60'000'000;  // then its KV is in the host tier, and off the device
  int64_t idle_ssd_us = 600'000'000;  // then on the SSD, and off both
  size_t max_sessions = 1 << 16;      // beyond it the one that was active longest ago is forgotten
};

// A wish of a request about what is kept of it.
struct Retention {
  int32_t priority = 50;  // 0 … 100: lower leaves a tier first
  int64_t ttl_us = 0;     // then the wish is over; 0: it never is
};

// Ids are the clients' own; equal ones under other salts are other sessions.
struct SessionKey {
  std::string salt;
  std::string id;
  auto operator<=>(const SessionKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SessionKey& key) {
    return H::combine(std::move(h), key.salt, key.id);
  }
};

enum class SessionState : uint8_t {
  kActive,  // a request of it runs or waits
  kDevice,  // idle for a short while
  kHost,    // idle; moved to the host tier
  kSsd,     // idle for long; moved to the SSD
};

// By SessionState.
inline constexpr std::array<const char*, 4> kSessionStates = {"active", "device", "host", "ssd"};

struct SessionView {
  SessionKey key;
  SessionState state = SessionState::kDevice;
  bool is_pinned = false;
  bool is_moving = false;  // up or down, by what an operator or the idle time asked for
  int32_t n_requests = 0;
  int32_t n_tokens = 0;
  int32_t priority = 50;
  double idle_s = 0;
  std::array<int32_t, 4> residency{};  // tokens by Source; kComputed: nowhere
};

// Engine thread only. Outlived by the cache, which it borrows with the clock.
class SessionTable {
 public:
  SessionTable(SessionOptions options, KvCache& cache, const base::Clock& clock);
  ~SessionTable();

  // A request of it has arrived, or is over; `tokens`: prompt and answer.
  void begin(const SessionKey& key, const CacheScope& scope, const Retention& retention);
  void end(const SessionKey& key, std::span<const int32_t> tokens);

  // Moves what is due. True when something changed. To be called when transfers were polled, and
  // at next_due_us() at the latest.
  bool tend();
  int64_t next_due_us() const;  // of the clock; the far future: nothing is due

  size_t size() const { return sessions_.size(); }
  const std::array<int64_t, 4>& n_by_state() const { return n_by_state_; }
  // Those after `after` in the order of their keys, at most `most`.
  std::vector<SessionView> list(const SessionKey& after, size_t most) const;
  std::optional<SessionView> find(const SessionKey& key) const;
  // The keys of all sessions with this id.
  std::vector<SessionKey> with_id(const std::string& id) const;

  // Each is idempotent, and kNotFound for a key that is unknown.
  // Keeps it on the device, bringing it up first. kResourceExhausted: pinned sessions would take
  // more than half of the pool.
  absl::Status pin(const SessionKey& key);
  absl::Status unpin(const SessionKey& key);
  // Brings it up, to be there when its next request comes.
  absl::Status prefetch(const SessionKey& key);
  // As if it had been idle for idle_ssd_us. kFailedPrecondition: it is active or pinned, or there
  // is no tier below.
  absl::Status offload(const SessionKey& key);
  // Erases what only it has, in every tier, and forgets it. kFailedPrecondition: it is active.
  absl::Status drop(const SessionKey& key);
  // Erases all that is kept under a salt, of any session or none, and forgets its sessions that are
  // not active. False: a request or a copy under way uses some of it, which stays. Idempotent.
  bool drop_salt(const std::string& salt);

 private:
  struct Session {
    CacheScope scope;
    std::vector<int32_t> tokens;
    int32_t n_active = 0;
    int32_t n_requests = 0;
    int64_t last_active_us = 0;
    int64_t retention_until_us = 0;  // 0: for ever
    int32_t priority = 50;
    SessionState stage = SessionState::kDevice;  // what it was moved to
    int64_t leaving_until_us = 0;  // copies are under way; the tier above is freed until then
    bool is_pinned = false;
    PrefixLease pin;
    PrefixLease coming_up;                // a prefetch under way
    int64_t due_us = 0;                   // in due_; 0: nothing is due
    std::optional<SessionState> counted;  // in n_by_state_
  };

  Session* lookup(const SessionKey& key);
  SessionView view(const SessionKey& key, const Session& session) const;
  int64_t first_idle_us() const;
  void schedule(const SessionKey& key, Session& session);
  void count(Session& session, std::optional<SessionState> state);
  void move_down(Session& session, SessionState stage);
  bool free_above(Session& session);
  bool follow_prefetch(Session& session);
  void start_prefetch(const SessionKey& key, Session& session);
  void renew_pin(Session& session);
  void forget(const SessionKey& key);
  void forget_oldest();

  const SessionOptions options_;
  KvCache& cache_;
  const base::Clock& clock_;
  absl::flat_hash_map<SessionKey, std::unique_ptr<Session>> sessions_;
  std::set<SessionKey> keys_;                      // in order, for lists
  std::set<std::pair<int64_t, SessionKey>> due_;   // inactive ones by when they move next
  std::set<std::pair<int64_t, SessionKey>> idle_;  // inactive ones by last activity
  std::array<int64_t, 4> n_by_state_{};
  std::set<SessionKey> moving_;  // those with something under way
};

}  // namespace pagoda::cache
