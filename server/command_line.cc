#include "server/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/config_file.h"
#include "server/help.h"

namespace pagoda {
namespace {

// Flags of one command that the table of options describes, while CLI11 fills them.
struct TableFlags {
  CLI::App* app = nullptr;
  std::map<std::string, std::vector<std::string>> values;  // by option name
  std::map<std::string, bool> switches;
};

// Options of the table that mean something without a listener and other users.
bool is_for_one_user(const Option& option) {
  static constexpr std::array<std::string_view, 4> kNot = {"max-num-seqs", "max-queue",
                                                           "step-timeout", "seed"};
  switch (option.group) {
    case OptionGroup::kEngine:
    case OptionGroup::kKvCache:
      return std::ranges::find(kNot, option.name) == kNot.end();
    case OptionGroup::kModel:
      return option.name == "config";
    case OptionGroup::kListener:
    case OptionGroup::kLogging:
      return false;
  }
  return false;
}
bool is_for_chat(const Option& option) {
  return is_for_one_user(option) || option.name == "chat-template" ||
         option.name == "generation-config";
}

void add_option(const Option& option, TableFlags& flags) {
  const std::string help = fmt::format("{} [{}]", option.help, option.default_text);
  const std::string group(option_group_name(option.group));
  if (option.value_name.empty()) {
    bool& value = flags.switches[option.name];
    flags.app->add_flag(fmt::format("--{0},!--no-{0}", option.name), value, help)->group(group);
    return;
  }
  flags.app->add_option("--" + option.name, flags.values[option.name], help)
      ->type_name(option.value_name)
      ->allow_extra_args(false)
      ->group(group);
}

// The flag may be one of the command's own, as chat has a --seed.
bool is_given(const TableFlags& flags, const Option& option) {
  return (flags.values.contains(option.name) || flags.switches.contains(option.name)) &&
         flags.app->count("--" + option.name) > 0;
}

absl::Status apply(const Option& option, const TableFlags& flags, ServeOptions& options) {
  if (!is_given(flags, option)) return absl::OkStatus();
  std::vector<std::string> values;
  if (option.value_name.empty()) {
    values.emplace_back(flags.switches.at(option.name) ? "true" : "false");
  } else {
    values = flags.values.at(option.name);
  }
  return apply_option(option, values, "--" + option.name, options);
}

// File, environment, flags: the later wins.
absl::Status apply_all(std::span<const Option> table, const TableFlags& flags,
                       const GetEnvironment& environment, base::FileSystem& fs,
                       ServeOptions& options) {
  for (const Option& option : table) {
    if (option.name != "config") continue;
    RETURN_IF_ERROR(apply_environment({&option, 1}, environment, options));
    RETURN_IF_ERROR(apply(option, flags, options));
  }
  const std::string typed_model = options.model;
  if (!options.config.empty()) {
    RETURN_IF_ERROR(apply_config_file(table, fs, options.config, options));
  }
  if (!typed_model.empty()) options.model = typed_model;
  RETURN_IF_ERROR(apply_environment(table, environment, options));
  for (const Option& option : table) RETURN_IF_ERROR(apply(option, flags, options));
  return absl::OkStatus();
}

// A number within bounds as CLI11's check: the error it returns follows the flag's name.
template <typename T>
CLI::Validator within(T low, T high) {
  return {[=](std::string& text) -> std::string {
            T value{};
            const auto [end, error] =
                std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && value >= low &&
                value <= high) {
              return "";
            }
            return fmt::format("takes a {}number from {} to {}, not \"{}\"",
                               std::is_integral_v<T> ? "whole " : "", low, high, text);
          },
          ""};
}

CLI::Validator size_value() {
  return {[](std::string& text) -> std::string {
            const auto bytes = parse_size(text);
            if (bytes.ok() && *bytes > 0) return "";
            return fmt::format("takes a size such as 512MiB, 4GiB or 1000000, not \"{}\"", text);
          },
          ""};
}

CLI::Validator time_value() {
  return {[](std::string& text) -> std::string {
            if (parse_duration(text).ok()) return "";
            return fmt::format("takes a time such as 500ms, 30s or 10min, not \"{}\"", text);
          },
          ""};
}

// Adds `--name VALUE` that sets `target` when it is given.
template <typename T, typename Target>
void add_number(CLI::App& app, const char* name, Target& target, T low, T high, const char* help) {
  app.add_option_function<T>(
         name, [&target](const T& value) { target = value; }, help)
      ->type_name("N")
      ->check(within<T>(low, high));
}
void add_text(CLI::App& app, const char* name, std::string& target, const char* type,
              const char* help) {
  app.add_option(name, target, help)->type_name(type);
}
void add_time(CLI::App& app, const char* name, std::chrono::milliseconds& target,
              const char* help) {
  const auto set = [&target](const std::string& text) { target = *parse_duration(text); };
  app.add_option_function<std::string>(name, set, help)->type_name("TIME")->check(time_value());
}

void add_size(CLI::App& app, const char* name, int64_t& target, const char* help) {
  const auto set = [&target](const std::string& text) { target = *parse_size(text); };
  app.add_option_function<std::string>(name, set, help)->type_name("SIZE")->check(size_value());
}

constexpr int64_t kMostTokens = 1 << 30;

void add_chat_flags(CLI::App& app, client::ChatOptions& chat) {
  app.add_option("TARGET", chat.target, "A GGUF file, `demo`, or http://HOST:PORT [demo]");
  add_text(app, "--system", chat.system, "TEXT", "What the model is told first");
  add_number<double>(app, "--temperature", chat.temperature, 0, 100,
                     "0 takes the likeliest token [the server's]");
  add_number<double>(app, "--top-p", chat.top_p, 0, 1,
                     "Draw among the likeliest tokens of this share [the server's]");
  add_number<int64_t>(app, "--max-tokens", chat.max_tokens, 1, kMostTokens,
                      "Longest answer [what the context holds]");
  add_number<int64_t>(app, "--seed", chat.seed, 0, std::numeric_limits<int64_t>::max(),
                      "The same seed draws the same answers");
  add_text(app, "--model", chat.model, "NAME", "Name of the model there [the server's first]");
  add_text(app, "--api-key", chat.api_key, "KEY", "Key that the server wants");
}

void add_bench_flags(CLI::App& app, client::BenchOptions& bench) {
  app.add_option("URL", bench.url, "Address of the server, such as http://127.0.0.1:8000")
      ->required();
  add_number<int32_t>(app, "--concurrency", bench.concurrency, 1, 4096,
                      "Requests at the same time [8]");
  add_number<int64_t>(app, "--requests", bench.n_requests, 1, 10'000'000, "Requests in all [64]");
  add_time(app, "--duration", bench.duration,
           "Begin no request after this time; with --requests whichever ends first");
  add_number<double>(app, "--request-rate", bench.request_rate, 1e-3, 1e5,
                     "Begin this many requests a second at random times, latencies counted from "
                     "then [the next begins when one ends]");
  add_number<int32_t>(app, "--prompt-tokens", bench.prompt_tokens, 1, 1 << 20,
                      "Length of a prompt: tokens by the server's /tokenize, words without [128]");
  add_number<int32_t>(app, "--max-tokens", bench.max_tokens, 1, 1 << 20,
                      "Length of an answer [64]");
  app.add_flag("--ignore-eos,!--no-ignore-eos", bench.ignore_eos,
               "Ask for answers of full length; OpenAI's own server refuses the field [on]");
  app.add_flag("--chat", bench.chat, "Use /v1/chat/completions [/v1/completions]");
  add_number<uint64_t>(app, "--seed", bench.seed, 0, std::numeric_limits<int64_t>::max(),
                       "Of prompts and times [1]");
  add_time(app, "--timeout", bench.timeout, "Longest silence of the server [10min]");
  add_text(app, "--model", bench.model, "NAME", "Name of the model [the server's first]");
  add_text(app, "--api-key", bench.api_key, "KEY", "Key that the server wants");
  add_text(app, "--json", bench.json_file, "FILE", "Write all figures to this file");
}

// What CLI11 could not place: the first such flag, or else the first such word.
absl::Status refuse_leftovers(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return absl::OkStatus();
  for (const std::string& word : rest) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string typed = word.substr(0, word.find('='));
    std::vector<std::string> names;
    for (const CLI::Option* known : app.get_options()) {
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
    }
    const auto near = nearest_name(typed, names);
    if (near.has_value()) {
      return base::invalid_argument("there is no flag {}; is {} meant?", typed, *near);
    }
    return base::invalid_argument("there is no flag {}; `pagoda {} --help` lists them all", typed,
                                  command_name(app));
  }
  return base::invalid_argument(
      "one argument is too many: \"{}\"; a text of several words needs "
      "quotes",
      rest.front());
}

// `typed` was looked for among the commands of `app`.
absl::Status refuse_command(const CLI::App& app, const std::string& typed) {
  const std::string before = app.get_parent() == nullptr ? "" : command_name(app) + " ";
  std::vector<std::string> names = {"--help"};
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const auto near = nearest_name(typed, names);
  return base::invalid_argument("there is no command {}{}{}", before, typed,
                                near ? fmt::format("; is {}{} meant?", before, *near)
                                     : fmt::format("; `pagoda {}--help` lists them all", before));
}

// Holds what CLI11 writes into while it parses.
class Parser {
 public:
  Parser() {
    app_.require_subcommand(0, 1);
    app_.formatter(make_help_formatter());
    for (const CommandText& text : command_texts()) {
      app_.add_subcommand(std::string(text.name), std::string(text.summary))->allow_extras();
    }
    serve_.app = app_.get_subcommand("serve");
    chat_.app = app_.get_subcommand("chat");
    complete_.app = app_.get_subcommand("complete");
    add_serve();
    add_chat();
    add_complete();
    add_bench_flags(*app_.get_subcommand("bench"), line_.bench);
    add_inspect();
    add_tokenize();
    add_kv();
    add_replay();
  }

  absl::StatusOr<CommandLine> parse(std::span<const char* const> arguments,
                                    const GetEnvironment& environment, base::FileSystem& fs) {
    try {
      app_.parse(static_cast<int>(arguments.size()), arguments.data());
    } catch (const CLI::CallForHelp&) {
      line_.text = app_.help();
      return line_;
    } catch (const CLI::ExtrasError&) {
      return refuse_command(app_, arguments.size() > 1 ? arguments[1] : "");
    }
    const CLI::App* chosen = &app_;
    while (!chosen->get_subcommands({}).empty()) {
      const std::vector<CLI::App*> given = chosen->get_subcommands();
      const std::vector<std::string> rest = chosen->remaining();
      if (given.empty() && !rest.empty()) return refuse_command(*chosen, rest.front());
      RETURN_IF_ERROR(refuse_leftovers(*chosen));
      if (given.empty()) {
        line_.text = chosen->help();
        return line_;
      }
      chosen = given.front();
    }
    RETURN_IF_ERROR(refuse_leftovers(*chosen));
    RETURN_IF_ERROR(finish(command_name(*chosen), environment, fs));
    return line_;
  }

 private:
  void add_serve() {
    serve_.app->add_option("MODEL", line_.options.model,
                           "A GGUF file, or `demo`; may be `model` in the file of --config");
    for (const Option& option : table_) add_option(option, serve_);
  }
  void add_chat() {
    add_chat_flags(*chat_.app, line_.chat);
    for (const Option& option : table_) {
      if (is_for_chat(option)) add_option(option, chat_);
    }
  }
  void add_complete() {
    complete_.app->add_option("MODEL", line_.options.model, "A GGUF file, or `demo`")->required();
    complete_.app->add_option("PROMPT", line_.text, "The text to complete")->required();
    add_number<int32_t>(*complete_.app, "--max-tokens", line_.max_tokens, 1, kMostTokens,
                        "Tokens to print at most [128]");
    for (const Option& option : table_) {
      if (is_for_one_user(option)) add_option(option, complete_);
    }
  }
  void add_inspect() {
    CLI::App& inspect = *app_.get_subcommand("inspect");
    inspect.add_option("MODEL", line_.options.model, "A GGUF file, or `demo`")->required();
    inspect.add_flag("--json", line_.json, "Print JSON, for programs");
  }
  void add_tokenize() {
    CLI::App& tokenize = *app_.get_subcommand("tokenize");
    tokenize.add_option("MODEL", line_.options.model, "A GGUF file, or `demo`")->required();
    tokenize.add_option("TEXT", line_.text, "The text to tokenize")->required();
  }

  void add_kv() {
    CLI::App& kv = *app_.get_subcommand("kv");
    kv.require_subcommand(0, 1);
    for (const CommandText& text : kv_command_texts()) {
      const std::string name(text.name.substr(kv.get_name().size() + 1));
      CLI::App& action = *kv.add_subcommand(name, std::string(text.summary))->allow_extras();
      action.add_option("DIR", line_.kv.folder, "The folder that --kv-ssd-path named")->required();
      if (name == "purge") {
        action.add_flag("--yes", line_.kv.yes, "Ask no question");
      } else {
        action.add_flag("--json", line_.json, "Print JSON, for programs");
      }
    }
  }

  void add_replay() {
    CLI::App& replay = *app_.get_subcommand("replay");
    replay
        .add_option("TRACE", line_.replay.trace, "What --trace-out wrote, or Mooncake's JSON lines")
        ->required();
    add_size(replay, "--device", line_.replay.device_bytes,
             "KV on the device [parts of the working set, in turn]");
    add_size(replay, "--host", line_.replay.host_bytes, "KV in the host tier [none]");
    add_size(replay, "--ssd", line_.replay.ssd_bytes, "KV on the SSD [none]");
    add_size(replay, "--block-bytes", line_.replay.block_bytes,
             "What a block takes [what the trace says]");
    replay.add_flag("--json", line_.json, "Print JSON, for programs");
  }

  absl::Status finish(std::string_view command, const GetEnvironment& environment,
                      base::FileSystem& fs) {
    if (command == "serve") return finish_serve(environment, fs);
    if (command == "chat") return finish_chat(environment, fs);
    if (command == "complete") {
      line_.command = Command::kComplete;
      return apply_all(table_, complete_, environment, fs, line_.options);
    }
    if (command == "bench") line_.command = Command::kBench;
    if (command == "inspect") line_.command = Command::kInspect;
    if (command == "tokenize") line_.command = Command::kTokenize;
    if (command == "replay") line_.command = Command::kReplay;
    if (command.starts_with("kv ")) line_.command = Command::kKv;
    if (command == "kv verify") line_.kv.action = KvAction::kVerify;
    if (command == "kv purge") line_.kv.action = KvAction::kPurge;
    if (command == "version") line_.command = Command::kVersion;
    return absl::OkStatus();
  }

  absl::Status finish_serve(const GetEnvironment& environment, base::FileSystem& fs) {
    line_.command = Command::kServe;
    RETURN_IF_ERROR(apply_all(table_, serve_, environment, fs, line_.options));
    if (!line_.options.model.empty()) return absl::OkStatus();
    return base::invalid_argument(
        "MODEL is required: give a GGUF file, or `demo` for the small model that scripts/setup.sh "
        "fetches");
  }

  absl::Status finish_chat(const GetEnvironment& environment, base::FileSystem& fs) {
    line_.command = Command::kChat;
    if (line_.chat.target.find("://") == std::string::npos) {
      line_.options.model = line_.chat.target;
      return apply_all(table_, chat_, environment, fs, line_.options);
    }
    for (const Option& option : table_) {
      if (!is_given(chat_, option)) continue;
      return base::invalid_argument(
          "--{} is for a model that runs in this process; the server at {} has its own setting",
          option.name, line_.chat.target);
    }
    return absl::OkStatus();
  }

  const std::vector<Option> table_ = option_table();
  CommandLine line_;
  CLI::App app_{"", "pagoda"};
  TableFlags serve_;
  TableFlags chat_;
  TableFlags complete_;
};

}  // namespace

absl::StatusOr<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                               const GetEnvironment& environment,
                                               base::FileSystem& fs) {
  std::vector<const char*> words(arguments.begin(), arguments.end());
  // `pagoda help [COMMAND]`, `pagoda help kv purge` and `pagoda --version` are what many type
  // first.
  if (words.size() > 1 && std::string_view(words[1]) == "help") {
    words.erase(words.begin() + 1);
    const bool is_kv = words.size() > 1 && std::string_view(words[1]) == "kv";
    words.resize(std::min<size_t>(words.size(), is_kv ? 3 : 2));
    words.push_back("--help");
  } else if (words.size() == 2 && std::string_view(words[1]) == "--version") {
    words[1] = "version";
  }
  try {
    return Parser().parse(words, environment, fs);
  } catch (const CLI::ParseError& error) {
    return base::invalid_argument("{}", error.what());
  }
}

}  // namespace pagoda
