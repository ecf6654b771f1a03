#include "server/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kHelpColumn = 32;

constexpr std::array<CommandText, 9> kCommands = {{
    {"serve", "[MODEL] [flags]", "Serve a model over HTTP, with OpenAI's API",
     "Each flag can also be set in the environment (--max-num-seqs is PAGODA_MAX_NUM_SEQS) and in "
     "the YAML file of --config (max-num-seqs: 64). Flags win over the environment, and the "
     "environment over the file. Sizes are bytes or 512MiB, 4GiB; times are 500ms, 30s, 10min.",
     "  pagoda serve demo\n"
     "  pagoda serve model.gguf --port 8001 --kv-cache-memory-bytes 4GiB\n"
     "  pagoda serve --config configs/cpu.yaml\n"},
    {"chat", "[URL or MODEL] [flags]", "Talk to a model in the terminal",
     "With a model it runs in this process; with an address the server there answers, Pagoda or "
     "any other with /v1/chat/completions. Lines from a pipe are answered one after another, and "
     "only the answers are printed.",
     "  pagoda chat\n"
     "  pagoda chat model.gguf --system 'Answer in one sentence.'\n"
     "  pagoda chat http://127.0.0.1:8000\n"
     "  echo 'Name three rivers.' | pagoda chat demo --temperature 0\n"},
    {"complete", "MODEL PROMPT [flags]", "Print the greedy completion of a text", "",
     "  pagoda complete demo 'The capital of France is' --max-tokens 8\n"},
    {"bench", "URL [flags]", "Measure a server: latencies and tokens a second",
     "Any server with OpenAI's /v1/completions or /v1/chat/completions, streaming. Each request "
     "has a prompt of its own, so that no cache of prompts helps. Ctrl-C ends early and prints "
     "what was measured.",
     "  pagoda bench http://127.0.0.1:8000\n"
     "  pagoda bench http://127.0.0.1:8000 --concurrency 16 --prompt-tokens 512\n"
     "  pagoda bench http://127.0.0.1:8000 --duration 30s --json run.json\n"},
    {"inspect", "MODEL [flags]", "Show a model file, and what memory its users take",
     "Reads only the header of the file.",
     "  pagoda inspect demo\n"
     "  pagoda inspect model.gguf --json\n"},
    {"tokenize", "MODEL TEXT", "Print the token ids of a text", "",
     "  pagoda tokenize demo 'Hello world'\n"},
    {"kv", "COMMAND DIR [flags]", "Look into the folder of an SSD tier, check it, or empty it",
     "DIR is the folder that --kv-ssd-path of serve named. It holds users' text at rest, as token "
     "ids. While a server has it open the commands refuse it, with exit status 1.",
     "  pagoda kv inspect /var/lib/pagoda/kv\n"
     "  pagoda kv purge /var/lib/pagoda/kv --yes\n"},
    {"replay", "TRACE [flags]", "Run a trace of requests through the cache alone",
     "Tells what share of the prompts' tokens a cache of other sizes would have found, by what was "
     "least recently used, by a score, and at best. --trace-out of serve writes such a trace, "
     "which has no word of the texts.",
     "  pagoda replay requests.jsonl\n"
     "  pagoda replay requests.jsonl --device 8GiB --host 64GiB --ssd 1000GiB\n"},
    {"version", "", "Print the versions of the program and its parts", "", "  pagoda version\n"},
}};

constexpr std::array<CommandText, 3> kKvCommands = {{
    {"kv inspect", "DIR [flags]", "Show what the folder of an SSD tier holds, and for whom",
     "Reads what segments say of themselves; those that no server finished are read whole. An "
     "identity stands for model, dtype and format, a salt for the users that share KV.",
     "  pagoda kv inspect /var/lib/pagoda/kv\n"
     "  pagoda kv inspect /var/lib/pagoda/kv --json\n"},
    {"kv verify", "DIR [flags]", "Read every record of an SSD tier, and tell what is wrong",
     "Exit status 1 when something is. Answers stay right all the same: a server computes again "
     "what it can't read.",
     "  pagoda kv verify /var/lib/pagoda/kv\n"
     "  pagoda kv verify /var/lib/pagoda/kv --json\n"},
    {"kv purge", "DIR [flags]", "Remove all that an SSD tier keeps",
     "Asks first; where nobody can be asked it wants --yes. The files are removed, not "
     "overwritten: until the disk uses their place again, their bytes may still be found on it.",
     "  pagoda kv purge /var/lib/pagoda/kv\n"
     "  pagoda kv purge /var/lib/pagoda/kv --yes\n"},
}};

std::string command_line(std::string_view name, std::string_view summary) {
  return fmt::format("  {:<12}{}\n", name, summary);
}

std::string option_names(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true, false);
  const std::vector<std::string>& names = option.get_lnames();
  // A switch is written --NAME,!--no-NAME.
  if (names.size() == 2 && names[1] == "no-" + names[0]) return "--[no-]" + names[0];
  std::string text = "--" + names.front();
  if (option.get_type_size() != 0) text += " " + option.get_type_name();
  return text;
}

std::string option_lines(const CLI::Option& option) {
  std::string text = "  " + option_names(option);
  if (text.size() + 2 > kHelpColumn) {
    text += "\n" + std::string(kHelpColumn, ' ');
  } else {
    text.resize(kHelpColumn, ' ');
  }
  return text + wrapped(option.get_description(), kHelpColumn, kHelpColumn) + "\n";
}

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    if (app->get_parent() == nullptr) return overview();
    const CommandText& command = command_text(command_name(*app));
    std::string text =
        fmt::format("{}.\n\nUsage: pagoda {} {}\n", command.summary, command.name, command.usage);
    const std::vector<const CLI::App*> commands = app->get_subcommands({});
    if (!commands.empty()) text += "\nCommands:\n";
    for (const CLI::App* each : commands) {
      text += command_line(each->get_name(), each->get_description());
    }
    for (const std::string& group : app->get_groups()) {
      if (group.empty()) continue;
      std::string lines;
      for (const CLI::Option* option : app->get_options()) {
        if (option->get_group() == group) lines += option_lines(*option);
      }
      const std::string title = group == "Options" ? "Arguments and flags" : group;
      if (!lines.empty()) text += fmt::format("\n{}:\n{}", title, lines);
    }
    if (!command.notes.empty()) text += "\n" + wrapped(command.notes, 0, 0) + "\n";
    return text + fmt::format("\nExamples:\n{}", command.examples);
  }
};

}  // namespace

std::span<const CommandText> command_texts() { return kCommands; }

std::span<const CommandText> kv_command_texts() { return kKvCommands; }

const CommandText& command_text(std::string_view name) {
  for (const std::span<const CommandText> texts : {command_texts(), kv_command_texts()}) {
    const auto found = std::ranges::find(texts, name, &CommandText::name);
    if (found != texts.end()) return *found;
  }
  CHECK(false);
}

std::string command_name(const CLI::App& app) {
  const CLI::App* above = app.get_parent();
  if (above == nullptr || above->get_parent() == nullptr) return app.get_name();
  return command_name(*above) + " " + app.get_name();
}

std::string overview() {
  std::string text =
      "Pagoda, an LLM inference server that keeps the KV cache of its conversations.\n\n"
      "Usage: pagoda COMMAND [arguments]\n\nCommands:\n";
  for (const CommandText& command : kCommands) text += command_line(command.name, command.summary);
  return text +
         "\nMODEL is a GGUF file, or `demo` for the small model that scripts/setup.sh fetches.\n"
         "`pagoda COMMAND --help` lists the flags of a command.\n\n"
         "Examples:\n"
         "  pagoda serve demo\n"
         "  pagoda chat\n"
         "  pagoda bench http://127.0.0.1:8000\n";
}

std::string wrapped(std::string_view text, size_t indent, size_t at) {
  std::string result;
  size_t column = at;
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!first && column + 1 + word.size() > kColumns) {
      result += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    first = false;
  }
  return result;
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace pagoda
