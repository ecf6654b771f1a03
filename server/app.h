// The commands of the program.
#pragma once

#include "absl/status/status.h"
#include "server/command_line.h"
#include "server/config.h"

namespace pagoda {

// Each runs to its end on the calling thread. An error is one sentence for the user.

// Until SIGTERM or SIGINT: then no request is accepted any more, those that wait get an error,
// those that run go on to their end within --shutdown-timeout, and the rest get an error. A second
// signal ends the process at once.
absl::Status run_serve(const ServeOptions& options, const GetEnvironment& environment);
// Prints the greedy completion of line.text as it is computed.
absl::Status run_complete(const CommandLine& line, const GetEnvironment& environment);
// Prints the ids of line.text, separated by blanks.
absl::Status run_tokenize(const CommandLine& line, const GetEnvironment& environment);

}  // namespace pagoda
