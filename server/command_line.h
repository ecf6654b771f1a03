// What was typed, as a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/config.h"

namespace pagoda {

enum class Command : uint8_t { kServe, kComplete, kTokenize, kVersion, kHelp };

struct CommandLine {
  Command command = Command::kHelp;
  ServeOptions options;      // serve; complete takes those of the engine and the KV cache
  std::string text;          // complete, tokenize: the text; kHelp: what to print
  int32_t max_tokens = 128;  // complete
};

// kInvalidArgument: one sentence for the user, with the nearest name for a flag that does not
// exist.
absl::StatusOr<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                               const GetEnvironment& environment);

}  // namespace pagoda
