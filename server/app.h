// The server as a whole: `pagoda serve`, and a server within another command.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config.h"

namespace pagoda {

// Runs to its end on the calling thread: until SIGTERM or SIGINT: then no request is accepted any
// more, those accepted run to their end within --shutdown-timeout, and the rest get an error. A
// second signal ends the process at once. An error is one sentence for the user.
absl::Status run_serve(const ServeOptions& options, const GetEnvironment& environment);

// A server in this process on a free port of 127.0.0.1, with threads of its own; it leaves signals
// and the set-up of the log alone. Destroying it breaks off what still runs.
class LocalServer {
 public:
  // Returns when it serves. Errors are one sentence for the user.
  static absl::StatusOr<std::unique_ptr<LocalServer>> start(ServeOptions options,
                                                            const GetEnvironment& environment);
  ~LocalServer();
  uint16_t port() const;

 private:
  LocalServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagoda
