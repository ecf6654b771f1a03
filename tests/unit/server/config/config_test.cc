#include "server/config.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/fs.h"
#include "server/command_line.h"
#include "server/help.h"

namespace pagoda {
namespace {

using std::chrono::milliseconds;

GetEnvironment environment_of(const std::map<std::string, std::string>& values) {
  return [&values](const std::string& name) -> const char* {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
}

absl::StatusOr<CommandLine> parse(std::vector<const char*> words,
                                  const std::map<std::string, std::string>& environment = {}) {
  words.insert(words.begin(), "pagoda");
  base::MemoryFileSystem no_files;
  return parse_command_line(words, environment_of(environment), no_files);
}

std::string error_of(std::vector<const char*> words,
                     const std::map<std::string, std::string>& environment = {}) {
  const auto line = parse(std::move(words), environment);
  EXPECT_FALSE(line.ok());
  return line.ok() ? "" : std::string(line.status().message());
}

TEST(Config, Sizes) {
  EXPECT_EQ(*parse_size("0"), 0);
  EXPECT_EQ(*parse_size("4096"), 4096);
  EXPECT_EQ(*parse_size("512MiB"), 512 << 20);
  EXPECT_EQ(*parse_size("4GiB"), int64_t{4} << 30);
  EXPECT_EQ(*parse_size("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(*parse_size("2GB"), 2'000'000'000);
  EXPECT_EQ(*parse_size("1TiB"), int64_t{1} << 40);
  for (const char* bad : {"", "MiB", "-1", "4 GiB", "4gib", "4G", "1e3", "nan", "inf", "0x10",
                          "99999999999999999999", "4GiBx", "1.2.3"}) {
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
  }
}

TEST(Config, Durations) {
  EXPECT_EQ(*parse_duration("500ms"), milliseconds(500));
  EXPECT_EQ(*parse_duration("30s"), milliseconds(30'000));
  EXPECT_EQ(*parse_duration("10min"), milliseconds(600'000));
  EXPECT_EQ(*parse_duration("1.5h"), milliseconds(5'400'000));
  for (const char* bad : {"", "30", "0s", "-1s", "s", "1 s", "1d", "1e300h", "0.1ms"}) {
    EXPECT_FALSE(parse_duration(bad).ok()) << bad;
  }
}

TEST(Config, EveryOptionTakesItsDefaultTextOrSaysWhatItTakes) {
  std::set<std::string> names;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.help.empty());
    EXPECT_FALSE(option.default_text.empty());
    ServeOptions options;
    // These take any text; what is wrong with it shows when it is used.
    static const std::set<std::string> any = {
        "config",      "served-model-name", "chat-template", "generation-config", "host",
        "kv-ssd-path", "trace-out",         "admin-host",    "admin-key"};
    const std::vector<std::string> nonsense = {any.contains(option.name) ? "" : "<nonsense>"};
    const absl::Status status = option.set(nonsense, options);
    ASSERT_FALSE(status.ok()) << option.name;
    EXPECT_TRUE(std::string(status.message()).starts_with("takes ")) << status;
    if (option.default_text.find(' ') == std::string::npos && option.default_text != "none") {
      const std::vector<std::string> text = {option.default_text};
      EXPECT_TRUE(option.set(text, options).ok()) << option.name;
    }
  }
}

TEST(Config, Defaults) {
  const auto line = parse({"serve", "demo"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->command, Command::kServe);
  EXPECT_EQ(line->options.model, "demo");
  EXPECT_EQ(line->options.port, 8000);
  EXPECT_EQ(line->options.max_body_bytes, 32 << 20);
  EXPECT_TRUE(line->options.enable_prefix_caching);
}

TEST(Config, FlagsOfServe) {
  const auto line = parse({"serve",
                           "model.gguf",
                           "--host",
                           "0.0.0.0",
                           "--port=0",
                           "--served-model-name",
                           "a",
                           "--served-model-name",
                           "b",
                           "--threads",
                           "3",
                           "--max-model-len",
                           "100",
                           "--max-num-seqs",
                           "2",
                           "--max-num-batched-tokens",
                           "64",
                           "--kv-cache-memory-bytes",
                           "1.5GiB",
                           "--block-size",
                           "32",
                           "--no-enable-prefix-caching",
                           "--max-queue",
                           "5",
                           "--max-body-bytes",
                           "1MiB",
                           "--max-json-depth",
                           "9",
                           "--request-timeout",
                           "5s",
                           "--slow-reader-timeout",
                           "500ms",
                           "--shutdown-timeout",
                           "1min",
                           "--seed",
                           "7",
                           "--log-level",
                           "warn",
                           "--device",
                           "cpu",
                           "--kernels",
                           "portable"});
  ASSERT_TRUE(line.ok()) << line.status();
  const ServeOptions& options = line->options;
  EXPECT_EQ(options.model, "model.gguf");
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.port, 0);
  EXPECT_EQ(options.served_model_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.max_model_len, 100);
  EXPECT_EQ(options.max_num_seqs, 2);
  EXPECT_EQ(options.max_num_batched_tokens, 64);
  EXPECT_EQ(options.kv_cache_memory_bytes, int64_t{3} << 29);
  EXPECT_EQ(options.block_size, 32);
  EXPECT_FALSE(options.enable_prefix_caching);
  EXPECT_EQ(options.max_queue, 5);
  EXPECT_EQ(options.max_body_bytes, 1 << 20);
  EXPECT_EQ(options.max_json_depth, 9);
  EXPECT_EQ(options.request_timeout, milliseconds(5000));
  EXPECT_EQ(options.slow_reader_timeout, milliseconds(500));
  EXPECT_EQ(options.shutdown_timeout, milliseconds(60'000));
  EXPECT_EQ(options.seed, 7U);
  EXPECT_EQ(options.log_level, "warn");
  EXPECT_EQ(options.kernels, "portable");
}

TEST(Config, TheLastOfTwoEqualFlagsCounts) {
  EXPECT_EQ(parse({"serve", "demo", "--port", "1", "--port", "2"})->options.port, 2);
}

TEST(Config, FlagsWinOverTheEnvironment) {
  const std::map<std::string, std::string> environment = {{"PAGODA_PORT", "9000"},
                                                          {"PAGODA_MAX_NUM_SEQS", "3"},
                                                          {"PAGODA_ENABLE_PREFIX_CACHING", "false"},
                                                          {"PAGODA_SERVED_MODEL_NAME", "x,y"},
                                                          {"PAGODA_SEED", ""}};
  const auto line = parse({"serve", "demo", "--port", "9001"}, environment);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.port, 9001);
  EXPECT_EQ(line->options.max_num_seqs, 3);
  EXPECT_FALSE(line->options.enable_prefix_caching);
  EXPECT_EQ(line->options.served_model_names, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(parse({"serve", "demo", "--enable-prefix-caching"}, environment)
                  ->options.enable_prefix_caching);
  EXPECT_EQ(error_of({"serve", "demo"}, {{"PAGODA_PORT", "http"}}),
            "PAGODA_PORT takes a whole number from 0 to 65535, not \"http\"");
}

TEST(Config, ASlipIsAnsweredWithTheNearestFlag) {
  EXPECT_EQ(error_of({"serve", "demo", "--prot", "8001"}),
            "there is no flag --prot; is --port meant?");
  EXPECT_EQ(error_of({"serve", "demo", "--max-num-seq=4"}),
            "there is no flag --max-num-seq; is --max-num-seqs meant?");
  EXPECT_EQ(error_of({"serve", "demo", "--no-enable-prefix-cache"}),
            "there is no flag --no-enable-prefix-cache; is --no-enable-prefix-caching meant?");
  EXPECT_NE(error_of({"serve", "demo", "--something-else-entirely"}).find("--help"),
            std::string::npos);
  EXPECT_EQ(error_of({"srve", "demo"}), "there is no command srve; is serve meant?");
}

TEST(Config, BadValuesNameTheFlag) {
  EXPECT_EQ(error_of({"serve", "demo", "--port", "65536"}),
            "--port takes a whole number from 0 to 65535, not \"65536\"");
  EXPECT_NE(error_of({"serve", "demo", "--kv-cache-memory-bytes", "lots"}).find("512MiB"),
            std::string::npos);
  EXPECT_NE(error_of({"serve", "demo", "--block-size", "20"}).find("multiple of 16"),
            std::string::npos);
  EXPECT_NE(error_of({"serve", "demo", "--device", "cuda"}).find("auto, cpu"), std::string::npos);
  EXPECT_NE(error_of({"serve"}).find("MODEL"), std::string::npos);
  EXPECT_NE(error_of({"serve", "demo", "extra"}).find("extra"), std::string::npos);
  EXPECT_NE(error_of({"complete", "demo", "hi", "--max-tokens", "0"}).find("--max-tokens"),
            std::string::npos);
}

TEST(Config, OtherCommands) {
  const auto complete =
      parse({"complete", "demo", "Once upon", "--max-tokens", "9", "--threads", "1"});
  ASSERT_TRUE(complete.ok()) << complete.status();
  EXPECT_EQ(complete->command, Command::kComplete);
  EXPECT_EQ(complete->text, "Once upon");
  EXPECT_EQ(complete->max_tokens, 9);
  EXPECT_EQ(complete->options.threads, 1);
  const auto tokenize = parse({"tokenize", "demo", "a b"});
  ASSERT_TRUE(tokenize.ok());
  EXPECT_EQ(tokenize->command, Command::kTokenize);
  EXPECT_EQ(parse({"version"})->command, Command::kVersion);
  EXPECT_EQ(parse({})->command, Command::kHelp);
}

TEST(Config, FlagsOfChat) {
  const auto line = parse({"chat", "m.gguf", "--temperature", "0.5", "--seed", "7", "--threads",
                           "1", "--system", "Be brief."});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->command, Command::kChat);
  EXPECT_EQ(line->options.model, "m.gguf");
  EXPECT_EQ(line->options.threads, 1);
  EXPECT_EQ(line->options.seed, 0U);
  EXPECT_EQ(line->chat.temperature, 0.5);
  EXPECT_EQ(line->chat.seed, 7);
  EXPECT_EQ(line->chat.system, "Be brief.");
  EXPECT_FALSE(line->chat.top_p.has_value());
  EXPECT_EQ(parse({"chat"})->options.model, "demo");
  EXPECT_NE(error_of({"chat", "http://h:1", "--threads", "1"}).find("--threads is for a model"),
            std::string::npos);
  EXPECT_EQ(error_of({"chat", "--temperature", "hot"}),
            "--temperature: takes a number from 0 to 100, not \"hot\"");
}

TEST(Config, FlagsOfBench) {
  const auto line = parse({"bench", "http://h:1", "--concurrency", "3", "--duration", "5s",
                           "--request-rate", "2.5", "--no-ignore-eos", "--chat"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->command, Command::kBench);
  EXPECT_EQ(line->bench.url, "http://h:1");
  EXPECT_EQ(line->bench.concurrency, 3);
  EXPECT_EQ(line->bench.duration, milliseconds(5000));
  EXPECT_EQ(line->bench.request_rate, 2.5);
  EXPECT_FALSE(line->bench.ignore_eos);
  EXPECT_TRUE(line->bench.chat);
  EXPECT_EQ(error_of({"bench"}), "URL is required");
}

TEST(Config, CommandsOfKv) {
  const auto inspect = parse({"kv", "inspect", "/kv", "--json"});
  ASSERT_TRUE(inspect.ok()) << inspect.status();
  EXPECT_EQ(inspect->command, Command::kKv);
  EXPECT_EQ(inspect->kv.action, KvAction::kInspect);
  EXPECT_EQ(inspect->kv.folder, "/kv");
  EXPECT_TRUE(inspect->json);
  EXPECT_EQ(parse({"kv", "verify", "/kv"})->kv.action, KvAction::kVerify);
  EXPECT_FALSE(parse({"kv", "purge", "/kv"})->kv.yes);
  const auto purge = parse({"kv", "purge", "--yes", "inspect"});
  EXPECT_EQ(purge->kv.action, KvAction::kPurge);
  EXPECT_EQ(purge->kv.folder, "inspect");
  EXPECT_TRUE(purge->kv.yes);
  EXPECT_EQ(error_of({"kv", "insepct", "/kv"}),
            "there is no command kv insepct; is kv inspect meant?");
  EXPECT_EQ(error_of({"kv", "burn", "/kv"}),
            "there is no command kv burn; `pagoda kv --help` lists them all");
  EXPECT_EQ(error_of({"kv", "inspect"}), "DIR is required");
  EXPECT_EQ(error_of({"kv", "inspect", "/kv", "--jsn"}),
            "there is no flag --jsn; is --json meant?");
  EXPECT_EQ(error_of({"kv", "verify", "/kv", "--yes"}),
            "there is no flag --yes; `pagoda kv verify --help` lists them all");
  EXPECT_EQ(error_of({"kv", "--json", "inspect", "/kv"}),
            "there is no flag --json; `pagoda kv --help` lists them all");
  EXPECT_NE(error_of({"kv", "inspect", "/kv", "/more"}).find("\"/more\""), std::string::npos);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

TEST(Config, HelpHasEveryFlagAndFitsATerminal) {
  const std::string serve = parse({"serve", "--help"})->text;
  for (const Option& option : option_table()) {
    const std::string flag =
        option.value_name.empty() ? "--[no-]" + option.name : "--" + option.name + " ";
    EXPECT_NE(serve.find(flag), std::string::npos) << option.name;
  }
  for (const CommandText& command : command_texts()) {
    const std::string name(command.name);
    const std::string text = parse({name.c_str(), "--help"})->text;
    EXPECT_NE(parse({})->text.find("  " + name + " "), std::string::npos) << name;
    EXPECT_TRUE(text.starts_with(std::string(command.summary)));
    EXPECT_NE(text.find("Usage: pagoda " + name), std::string::npos);
    EXPECT_NE(text.find("Examples:\n  "), std::string::npos);
    EXPECT_EQ(text, parse({"help", name.c_str()})->text);
    for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 80U) << line;
  }
  EXPECT_EQ(parse({})->text, parse({"--help"})->text);
  EXPECT_EQ(parse({"--version"})->command, Command::kVersion);
}

TEST(Config, HelpOfTheKvCommands) {
  const std::string all = parse({"kv", "--help"})->text;
  EXPECT_EQ(all, parse({"kv"})->text);
  for (const CommandText& command : kv_command_texts()) {
    const std::string name(command.name.substr(3));
    const std::string text = parse({"kv", name.c_str(), "--help"})->text;
    EXPECT_NE(all.find("\n  " + name + " "), std::string::npos);
    EXPECT_NE(all.find(command.summary), std::string::npos);
    EXPECT_TRUE(text.starts_with(command.summary));
    EXPECT_NE(text.find("Usage: pagoda kv " + name + " DIR"), std::string::npos);
    EXPECT_EQ(text, parse({"help", "kv", name.c_str()})->text);
    for (const std::string& line : lines_of(all + text)) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST(Config, ExamplesOfTheHelpAreRight) {
  base::MemoryFileSystem fs;
  fs.put("configs/cpu.yaml", {'m', 'o', 'd', 'e', 'l', ':', ' ', 'x'});
  std::vector<CommandText> commands(command_texts().begin(), command_texts().end());
  commands.insert(commands.end(), kv_command_texts().begin(), kv_command_texts().end());
  for (const CommandText& command : commands) {
    for (const std::string& example : lines_of(std::string(command.examples))) {
      // What stands before `pagoda` is a pipe; quotes hold blanks.
      const size_t begin = example.find("pagoda ");
      if (begin == std::string::npos) continue;
      std::vector<std::string> words(1);
      bool quoted = false;
      for (const char c : example.substr(begin)) {
        if (c == '\'') {
          quoted = !quoted;
        } else if (c == ' ' && !quoted) {
          words.emplace_back();
        } else {
          words.back() += c;
        }
      }
      std::vector<const char*> arguments;
      for (const std::string& word : words) arguments.push_back(word.c_str());
      const auto line = parse_command_line(arguments, environment_of({}), fs);
      EXPECT_TRUE(line.ok()) << example << ": " << line.status();
    }
  }
}

}  // namespace
}  // namespace pagoda
