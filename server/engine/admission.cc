#include "server/engine/admission.h"

#include "base/check.h"

namespace pagoda::engine {

AdmissionTicket::~AdmissionTicket() {
  if (admission_ != nullptr) admission_->give_back(bytes_);
}

absl::StatusOr<AdmissionTicket> Admission::try_admit(int64_t body_bytes) {
  std::lock_guard lock(mutex_);
  if (n_requests_ >= max_requests_) {
    return base::status_error(absl::StatusCode::kResourceExhausted,
                              "the server is busy: {} requests are running or waiting",
                              n_requests_);
  }
  if (n_requests_ > 0 && n_bytes_ + body_bytes > max_bytes_) {
    return base::status_error(absl::StatusCode::kResourceExhausted,
                              "the server is busy: it holds {} bytes of request bodies", n_bytes_);
  }
  ++n_requests_;
  n_bytes_ += body_bytes;
  return AdmissionTicket(this, body_bytes);
}

int64_t Admission::n_admitted() const {
  std::lock_guard lock(mutex_);
  return n_requests_;
}

int64_t Admission::n_body_bytes() const {
  std::lock_guard lock(mutex_);
  return n_bytes_;
}

void Admission::give_back(int64_t body_bytes) {
  std::lock_guard lock(mutex_);
  --n_requests_;
  n_bytes_ -= body_bytes;
  CHECK(n_requests_ >= 0 && n_bytes_ >= 0);
}

}  // namespace pagoda::engine
