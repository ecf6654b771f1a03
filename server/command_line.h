// What was typed, as a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/fs.h"
#include "server/client/bench_options.h"
#include "server/client/chat_options.h"
#include "server/config.h"

namespace pagoda {

enum class Command : uint8_t {
  kServe,
  kChat,
  kComplete,
  kBench,
  kInspect,
  kTokenize,
  kKv,
  kReplay,
  kVersion,
  kHelp,
};

enum class KvAction : uint8_t { kInspect, kVerify, kPurge };

struct KvCommand {
  KvAction action = KvAction::kInspect;
  std::string folder;
  bool yes = false;  // purge without a question
};

struct ReplayCommand {
  std::string trace;
  int64_t device_bytes = 0;  // 0: parts of the working set
  int64_t host_bytes = 0;
  int64_t ssd_bytes = 0;
  int64_t block_bytes = 0;  // 0: what the trace says
};

struct CommandLine {
  Command command = Command::kHelp;
  ServeOptions options;      // serve; chat and complete take those of the engine and the KV cache
  std::string text;          // complete, tokenize: the text; kHelp: what to print
  int32_t max_tokens = 128;  // complete
  bool json = false;         // inspect, kv, replay
  KvCommand kv;
  ReplayCommand replay;
  client::ChatOptions chat;
  client::BenchOptions bench;
};

// Options come from the file of --config, over it the environment, over that the flags.
// kInvalidArgument: one sentence for the user, with the nearest name for a flag that does not
// exist. The file system is only asked for the configuration file.
absl::StatusOr<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                               const GetEnvironment& environment,
                                               base::FileSystem& fs);

}  // namespace pagoda
