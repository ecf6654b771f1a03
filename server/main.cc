// The program: reads the command line, runs the command, and turns an error into one sentence and
// exit status 2.
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "base/check.h"
#include "server/app.h"
#include "server/command_line.h"

namespace {

const char* environment(const std::string& name) { return std::getenv(name.c_str()); }

absl::Status run(std::span<const char* const> arguments) {
  ASSIGN_OR_RETURN(const pagoda::CommandLine line,
                   pagoda::parse_command_line(arguments, environment));
  switch (line.command) {
    case pagoda::Command::kServe:
      return pagoda::run_serve(line.options, environment);
    case pagoda::Command::kComplete:
      return pagoda::run_complete(line, environment);
    case pagoda::Command::kTokenize:
      return pagoda::run_tokenize(line, environment);
    case pagoda::Command::kVersion:
      fmt::print("pagoda {}\n", pagoda::version());
      return absl::OkStatus();
    case pagoda::Command::kHelp:
      fmt::print("{}", line.text);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = run({argv, static_cast<size_t>(argc)});
  if (status.ok()) return 0;
  fmt::print(stderr, "pagoda: {}\n", pagoda::base::message_of(status));
  return 2;
}
