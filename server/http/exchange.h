// One request and the way to answer it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/functional/any_invocable.h"
#include "server/engine/admission.h"
#include "server/http/message.h"

namespace pagoda::http {

class Connection;

// Any thread may answer, one thread at a time: either respond() once, or begin_stream(), any number
// of send() and end_stream(). None of them waits. Shared by whoever still works on the answer; the
// last to let go of an unanswered exchange makes it a 500, and of an open stream a broken
// connection, which the client can tell from an end. It holds the request's place at the door
// together with the connection, so the place is free when the work is over and the answer written,
// and not when the client leaves.
class Exchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, Request request,
           std::shared_ptr<engine::AdmissionTicket> ticket);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Request& request() const { return request_; }
  // The body may be freed once it is parsed.
  std::string take_body() { return std::move(request_.body); }

  // `cancel` runs at most once, on an I/O thread, when the client has gone; at once when it has
  // gone already. It must not wait.
  void on_client_gone(absl::AnyInvocable<void()> cancel);
  bool client_gone() const;

  void respond(Response response);
  // Only status, content type and headers of `head` are used.
  void begin_stream(Response head);
  // Whole events; the bytes of one call go out as one chunk.
  void send(std::string events);
  void end_stream();

 private:
  friend class Connection;
  // Called by the connection.
  void lose_client();

  // Shared: the connection lives until its socket is closed and its last exchange is over.
  const std::shared_ptr<Connection> connection_;
  Request request_;
  const std::shared_ptr<engine::AdmissionTicket> ticket_;  // shared with the connection

  mutable std::mutex mutex_;
  bool client_gone_ = false;           // guarded by mutex_
  bool answered_ = false;              // guarded by mutex_: an answer was begun
  bool stream_open_ = false;           // guarded by mutex_
  absl::AnyInvocable<void()> cancel_;  // guarded by mutex_
};

}  // namespace pagoda::http
