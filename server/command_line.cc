#include "server/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagoda {
namespace {

constexpr char kIntroduction[] =
    "Pagoda, an LLM inference server that keeps the KV cache of its conversations.";
constexpr char kServeFooter[] =
    "Sizes are bytes or 512MiB, 4GiB; times are 500ms, 30s, 10min. Each option can also be set in "
    "the environment:\n--max-num-seqs is PAGODA_MAX_NUM_SEQS. Flags win over the environment.\n"
    "MODEL is a GGUF file, or `demo` for the small model that scripts/setup.sh fetches.";

// The options of one subcommand while CLI11 fills them.
struct Parsed {
  CLI::App* app = nullptr;
  std::map<std::string, std::vector<std::string>> values;  // by option name
  std::map<std::string, bool> switches;
};

// Help without CLI11's notes on types and counts.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const bool has_value = !option->get_positional() && option->get_type_size() != 0;
    return has_value ? " " + option->get_type_name() : "";
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return option->get_name(true, false);
    return fmt::format("--{}", fmt::join(option->get_lnames(), ", --"));
  }
};

bool is_for_complete(const Option& option) {
  switch (option.group) {
    case OptionGroup::kEngine:
    case OptionGroup::kKvCache:
    case OptionGroup::kLogging:
      return true;
    case OptionGroup::kModel:
    case OptionGroup::kListener:
      return false;
  }
  return false;
}

void add_option(const Option& option, Parsed& parsed) {
  const std::string help = fmt::format("{} [{}]", option.help, option.default_text);
  const std::string group(option_group_name(option.group));
  if (option.value_name.empty()) {
    bool& value = parsed.switches[option.name];
    parsed.app->add_flag(fmt::format("--{0},!--no-{0}", option.name), value, help)->group(group);
    return;
  }
  parsed.app->add_option("--" + option.name, parsed.values[option.name], help)
      ->type_name(option.value_name)
      ->allow_extra_args(false)
      ->group(group);
}

absl::Status apply(std::span<const Option> table, const Parsed& parsed, ServeOptions& options) {
  for (const Option& option : table) {
    if (parsed.app->get_option_no_throw("--" + option.name) == nullptr) continue;
    if (parsed.app->count("--" + option.name) == 0) continue;
    std::vector<std::string> values;
    if (option.value_name.empty()) {
      values.emplace_back(parsed.switches.at(option.name) ? "true" : "false");
    } else {
      values = parsed.values.at(option.name);
    }
    RETURN_IF_ERROR(apply_option(option, values, "--" + option.name, options));
  }
  return absl::OkStatus();
}

// What CLI11 could not place: the first such flag, or else the first such word.
absl::Status refuse_leftovers(const CLI::App& app, std::span<const Option> table) {
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return absl::OkStatus();
  for (const std::string& word : rest) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string typed = word.substr(0, word.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* known : app.get_options()) {
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
    }
    for (const Option& option : table) {
      if (option.value_name.empty()) names.push_back("--no-" + option.name);
    }
    const auto near = nearest_name(typed, names);
    if (near.has_value()) {
      return base::invalid_argument("there is no flag {}; is {} meant?", typed, *near);
    }
    return base::invalid_argument("there is no flag {}; `pagoda {} --help` lists them all", typed,
                                  app.get_name());
  }
  return base::invalid_argument(
      "one argument is too many: \"{}\"; a text of several words needs "
      "quotes",
      rest.front());
}

absl::Status refuse_command(const std::string& typed) {
  const std::vector<std::string> names = {"serve", "complete", "tokenize", "version", "--help"};
  const auto near = nearest_name(typed, names);
  return base::invalid_argument(
      "there is no command {}{}", typed,
      near ? fmt::format("; is {} meant?", *near) : "; `pagoda --help` lists them all");
}

absl::StatusOr<CommandLine> parse(std::span<const char* const> arguments,
                                  const GetEnvironment& environment) {
  CommandLine line;
  const std::vector<Option> table = option_table();
  CLI::App app(kIntroduction, "pagoda");
  app.require_subcommand(0, 1);
  // Shared, as CLI11 hands it on to the subcommands.
  const auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(40);
  app.formatter(formatter);
  const auto command = [&](const char* name, const char* help) {
    CLI::App* added = app.add_subcommand(name, help);
    added->allow_extras();
    return added;
  };
  Parsed serve{command("serve", "Serve MODEL over HTTP"), {}, {}};
  Parsed complete{command("complete", "Print the greedy completion of PROMPT"), {}, {}};
  CLI::App* tokenize = command("tokenize", "Print the token ids of TEXT");
  CLI::App* version = command("version", "Print the version");
  serve.app->footer(kServeFooter);
  for (CLI::App* with_model : {serve.app, complete.app, tokenize}) {
    with_model->add_option("MODEL", line.options.model, "A GGUF file, or `demo`")->required();
  }
  complete.app->add_option("PROMPT", line.text, "The text to complete")->required();
  complete.app->add_option("--max-tokens", line.max_tokens, "Tokens to print at most [128]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30));
  tokenize->add_option("TEXT", line.text, "The text to tokenize")->required();
  for (const Option& option : table) {
    add_option(option, serve);
    if (is_for_complete(option)) add_option(option, complete);
  }
  bool wants_help = false;
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::CallForHelp&) {
    wants_help = true;
  } catch (const CLI::ExtrasError&) {
    return refuse_command(arguments.size() > 1 ? arguments[1] : "");
  }
  if (wants_help || app.get_subcommands().empty()) {
    line.text = app.help();
    return line;
  }
  const CLI::App& chosen = *app.get_subcommands().front();
  RETURN_IF_ERROR(refuse_leftovers(chosen, table));
  RETURN_IF_ERROR(apply_environment(table, environment, line.options));
  if (&chosen == version) line.command = Command::kVersion;
  if (&chosen == tokenize) line.command = Command::kTokenize;
  for (const Parsed* parsed : {&serve, &complete}) {
    if (parsed->app != &chosen) continue;
    line.command = parsed == &serve ? Command::kServe : Command::kComplete;
    RETURN_IF_ERROR(apply(table, *parsed, line.options));
  }
  return line;
}

}  // namespace

absl::StatusOr<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                               const GetEnvironment& environment) {
  try {
    return parse(arguments, environment);
  } catch (const CLI::ParseError& error) {
    return base::invalid_argument("{}", error.what());
  }
}

}  // namespace pagoda
