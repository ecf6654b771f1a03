// `pagoda bench URL`: load on a server and what it makes of it.
#pragma once

#include "absl/status/status.h"
#include "server/client/bench_options.h"

namespace pagoda::client {

// Runs on the calling thread until the load is done or SIGINT or SIGTERM comes, and prints what was
// measured; progress goes to stderr. kCancelled without a message after a signal; other errors are
// one sentence: no server there, no request that succeeded, a file that cannot be written.
absl::Status run_bench(BenchOptions options);

}  // namespace pagoda::client
