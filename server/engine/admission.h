// The door: a request takes a ticket before anything of it is parsed.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"

namespace pagoda::engine {

class Admission;

// The right to occupy a place; given back when it dies.
class AdmissionTicket {
 public:
  AdmissionTicket() = default;
  AdmissionTicket(AdmissionTicket&& other) noexcept { swap(other); }
  AdmissionTicket& operator=(AdmissionTicket&& other) noexcept {
    AdmissionTicket(std::move(other)).swap(*this);
    return *this;
  }
  ~AdmissionTicket();

 private:
  friend class Admission;
  AdmissionTicket(Admission* admission, int64_t bytes) : admission_(admission), bytes_(bytes) {}
  void swap(AdmissionTicket& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(bytes_, other.bytes_);
  }
  Admission* admission_ = nullptr;
  int64_t bytes_ = 0;
};

// Any thread. Outlives its tickets.
class Admission {
 public:
  Admission(int64_t max_requests, int64_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

  // kResourceExhausted when the requests, or the bytes of their bodies, would be too many. A single
  // body is always let in when it is the only one.
  absl::StatusOr<AdmissionTicket> try_admit(int64_t body_bytes);
  int64_t n_admitted() const;
  int64_t n_body_bytes() const;  // of the bodies of those

 private:
  friend class AdmissionTicket;
  void give_back(int64_t body_bytes);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  int64_t n_requests_ = 0;  // guarded by mutex_
  int64_t n_bytes_ = 0;     // guarded by mutex_
};

}  // namespace pagoda::engine
