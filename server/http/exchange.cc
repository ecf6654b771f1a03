#include "server/http/exchange.h"

#include <utility>

#include "base/check.h"
#include "server/http/connection.h"

namespace pagoda::http {

Exchange::Exchange(std::shared_ptr<Connection> connection, Request request,
                   std::shared_ptr<engine::AdmissionTicket> ticket)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      ticket_(std::move(ticket)) {}

Exchange::~Exchange() {
  if (!answered_) connection_->post_dropped();
  if (stream_open_) connection_->post_abort();
}

void Exchange::on_client_gone(absl::AnyInvocable<void()> cancel) {
  {
    std::lock_guard lock(mutex_);
    if (!client_gone_) {
      cancel_ = std::move(cancel);
      return;
    }
  }
  cancel();
}

bool Exchange::client_gone() const {
  std::lock_guard lock(mutex_);
  return client_gone_;
}

void Exchange::lose_client() {
  absl::AnyInvocable<void()> cancel;
  {
    std::lock_guard lock(mutex_);
    client_gone_ = true;
    cancel = std::exchange(cancel_, nullptr);
  }
  if (cancel) cancel();
}

void Exchange::respond(Response response) {
  {
    std::lock_guard lock(mutex_);
    CHECK(!answered_);
    answered_ = true;
  }
  connection_->post_response(std::move(response));
}

void Exchange::begin_stream(Response head) {
  {
    std::lock_guard lock(mutex_);
    CHECK(!answered_);
    answered_ = true;
    stream_open_ = true;
  }
  connection_->post_stream_head(std::move(head));
}

void Exchange::send(std::string events) { connection_->post_events(std::move(events)); }

void Exchange::end_stream() {
  {
    std::lock_guard lock(mutex_);
    stream_open_ = false;
  }
  connection_->post_stream_end();
}

}  // namespace pagoda::http
