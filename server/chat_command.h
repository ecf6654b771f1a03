// `pagoda chat` with a server elsewhere, or with one that it starts itself.
#pragma once

#include "absl/status/status.h"
#include "server/command_line.h"
#include "server/config.h"

namespace pagoda {

// Until the user leaves. An error is one sentence for the user.
absl::Status run_chat(const CommandLine& line, const GetEnvironment& environment);

}  // namespace pagoda
