// The program: reads the command line, runs the command, and turns an error into one sentence and
// exit status 2; 1 when what was to be checked is wrong or in use, 130 when the user broke it off.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "base/check.h"
#include "base/fs.h"
#include "base/print.h"
#include "server/app.h"
#include "server/chat_command.h"
#include "server/client/bench.h"
#include "server/command_line.h"
#include "server/inspect.h"
#include "server/kv_command.h"
#include "server/offline.h"
#include "server/replay_command.h"
#include "server/version_text.h"

namespace {

const char* environment(const std::string& name) { return std::getenv(name.c_str()); }

absl::Status run(std::span<const char* const> arguments) {
  pagoda::base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(const pagoda::CommandLine line,
                   pagoda::parse_command_line(arguments, environment, fs));
  switch (line.command) {
    case pagoda::Command::kServe:
      return pagoda::run_serve(line.options, environment);
    case pagoda::Command::kChat:
      return pagoda::run_chat(line, environment);
    case pagoda::Command::kBench:
      return pagoda::client::run_bench(line.bench);
    case pagoda::Command::kComplete:
      return pagoda::run_complete(line, environment);
    case pagoda::Command::kInspect:
      return pagoda::run_inspect(line, environment);
    case pagoda::Command::kTokenize:
      return pagoda::run_tokenize(line, environment);
    case pagoda::Command::kKv:
      return pagoda::run_kv(line);
    case pagoda::Command::kReplay:
      return pagoda::run_replay(line);
    case pagoda::Command::kVersion:
      pagoda::base::print(stdout, pagoda::version_text());
      return absl::OkStatus();
    case pagoda::Command::kHelp:
      pagoda::base::print(stdout, line.text);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = run({argv, static_cast<size_t>(argc)});
  if (status.ok()) return 0;
  // Ended by the user, who knows; as a shell tells it of SIGINT.
  if (status.code() == absl::StatusCode::kCancelled) return 130;
  pagoda::base::print(stderr, fmt::format("pagoda: {}\n", pagoda::base::message_of(status)));
  return absl::IsDataLoss(status) || absl::IsAborted(status) ? 1 : 2;
}
