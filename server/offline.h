// Commands that run a model, or its tokenizer, without a listener.
#pragma once

#include "absl/status/status.h"
#include "server/command_line.h"
#include "server/config.h"

namespace pagoda {

// Each runs to its end on the calling thread. An error is one sentence for the user.

// Prints the greedy completion of line.text as it is computed.
absl::Status run_complete(const CommandLine& line, const GetEnvironment& environment);
// Prints the ids of line.text, separated by blanks.
absl::Status run_tokenize(const CommandLine& line, const GetEnvironment& environment);

}  // namespace pagoda
