#include "server/config_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/command_line.h"

namespace pagoda {
namespace {

using Environment = std::map<std::string, std::string>;

const char* no_variables(const std::string&) { return nullptr; }

// `pagoda serve demo …` with a file c.yaml.
absl::StatusOr<ServeOptions> serve(std::vector<std::string> flags, const Environment& environment,
                                   const std::string& file) {
  base::MemoryFileSystem fs;
  fs.put("c.yaml", {file.begin(), file.end()});
  std::vector<const char*> words = {"pagoda", "serve", "demo"};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  const auto get = [&](const std::string& name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  };
  auto line = parse_command_line(words, get, fs);
  if (!line.ok()) return line.status();
  line->options.config.clear();
  return line->options;
}

absl::StatusOr<ServeOptions> from_text(const std::string& text) {
  ServeOptions options;
  RETURN_IF_ERROR(apply_config_text(option_table(), text, "c.yaml", options));
  return options;
}

std::string error_of(const std::string& text) {
  const auto options = from_text(text);
  EXPECT_FALSE(options.ok()) << text;
  return options.ok() ? "" : base::message_of(options.status());
}

// A value that the option takes and that is not its default.
std::optional<std::string> other_value(const Option& option) {
  for (const char* text : {"false", "true", "48", "3MiB", "7s", "json", "cpu", "portable", "debug",
                           "https://example.org", "eager", "restore", "some-text"}) {
    const std::vector<std::string> value = {text};
    ServeOptions options;
    if (option.set(value, options).ok() && options != ServeOptions()) return text;
  }
  return std::nullopt;
}

TEST(ConfigFile, EveryOptionCanBeSetInThreeWaysWithTheSameResult) {
  const ServeOptions defaults = *serve({}, {}, "");
  for (const Option& option : option_table()) {
    if (option.name == "config") continue;  // a file does not name a file
    const auto value = other_value(option);
    ASSERT_TRUE(value.has_value()) << option.name << ": no candidate fits; add one";
    std::vector<std::string> flags = {"--" + option.name, *value};
    if (option.value_name.empty()) flags = {(*value == "true" ? "--" : "--no-") + option.name};
    const auto by_flag = serve(flags, {}, "");
    const auto by_variable = serve({}, {{environment_name(option), *value}}, "");
    const auto by_file = serve({"--config", "c.yaml"}, {}, option.name + ": " + *value + "\n");
    ASSERT_TRUE(by_flag.ok()) << by_flag.status();
    ASSERT_TRUE(by_variable.ok()) << by_variable.status();
    ASSERT_TRUE(by_file.ok()) << by_file.status();
    EXPECT_FALSE(*by_flag == defaults) << option.name;
    EXPECT_TRUE(*by_flag == *by_variable) << option.name;
    EXPECT_TRUE(*by_flag == *by_file) << option.name;
    if (!option.repeatable) continue;
    const std::string two = *value + "2";
    flags.insert(flags.end(), {"--" + option.name, two});
    const auto flags_twice = serve(flags, {}, "");
    ASSERT_TRUE(flags_twice.ok()) << flags_twice.status();
    EXPECT_TRUE(*flags_twice == *serve({}, {{environment_name(option), *value + "," + two}}, ""));
    EXPECT_TRUE(*flags_twice == *serve({"--config", "c.yaml"}, {},
                                       option.name + ":\n  - " + *value + "\n  - " + two + "\n"));
  }
}

TEST(ConfigFile, FlagsWinOverTheEnvironmentAndThatOverTheFile) {
  const std::string file = "port: 1\nmax-num-seqs: 1\nmax-queue: 1\nmodel: other\n";
  const Environment environment = {
      {"PAGODA_CONFIG", "c.yaml"}, {"PAGODA_PORT", "2"}, {"PAGODA_MAX_NUM_SEQS", "2"}};
  const auto options = serve({"--port", "3"}, environment, file);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->port, 3);
  EXPECT_EQ(options->max_num_seqs, 2);
  EXPECT_EQ(options->max_queue, 1);
  EXPECT_EQ(options->model, "demo");
  const auto missing = serve({"--config", "none.yaml"}, environment, file);
  EXPECT_NE(base::message_of(missing.status()).find("none.yaml"), std::string::npos);
}

TEST(ConfigFile, TheModelMayStandInTheFile) {
  base::MemoryFileSystem fs;
  const std::string text = "model: my.gguf\n";
  fs.put("c.yaml", {text.begin(), text.end()});
  const std::vector<const char*> words = {"pagoda", "serve", "--config", "c.yaml"};
  const auto line = parse_command_line(words, no_variables, fs);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.model, "my.gguf");
}

TEST(ConfigFile, WhatYamlMayLookLike) {
  EXPECT_TRUE(*from_text("") == ServeOptions());
  EXPECT_TRUE(*from_text("# nothing\n---\n") == ServeOptions());
  EXPECT_TRUE(*from_text("{}") == ServeOptions());
  EXPECT_EQ(from_text("max_model_len: 100\n")->max_model_len, 100);
  EXPECT_EQ(from_text("{\"port\": \"81\", 'host': '::1'}")->host, "::1");
  EXPECT_EQ(from_text("\xEF\xBB\xBFport: 81\r\n")->port, 81);
  EXPECT_EQ(from_text("chat-template: |\n  a\n  {{ b }}\n")->chat_template, "a\n{{ b }}\n");
  EXPECT_EQ(from_text("served-model-name: one")->served_model_names,
            (std::vector<std::string>{"one"}));
  EXPECT_EQ(from_text("served-model-name: [one, \"a,b\"]")->served_model_names,
            (std::vector<std::string>{"one", "a,b"}));
  EXPECT_FALSE(from_text("enable-prefix-caching: off")->enable_prefix_caching);
  EXPECT_EQ(from_text("served-model-name: \"null\"")->served_model_names.front(), "null");
}

TEST(ConfigFile, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of("host: x\n\nprot: 1\n"), "c.yaml:3: there is no option prot; is port meant?");
  EXPECT_EQ(error_of("port: http"),
            "c.yaml:1: port takes a whole number from 0 to 65535, not \"http\"");
  EXPECT_EQ(error_of("port: 1\nhost: x\nport: 2"), "c.yaml:3: port is set already in line 1");
  EXPECT_EQ(error_of("max-queue: 1\nmax_queue: 1"), "c.yaml:2: max-queue is set already in line 1");
  EXPECT_EQ(error_of("port: [1, 2]"), "c.yaml:1: port takes one value, not a list");
  EXPECT_EQ(error_of("\nport: {a: 1}"),
            "c.yaml:2: port takes a value, not a mapping; options are not nested");
  EXPECT_EQ(error_of("port:\nhost: x"),
            "c.yaml:1: port has no value; leave the line out for the default");
  EXPECT_EQ(error_of("port: ~"), "c.yaml:1: port has no value; leave the line out for the default");
  EXPECT_EQ(error_of("no-enable-prefix-caching: true"),
            "c.yaml:1: there is no option no-enable-prefix-caching; write enable-prefix-caching: "
            "false");
  EXPECT_EQ(error_of("served-model-name: []"), "c.yaml:1: served-model-name is an empty list");
  EXPECT_EQ(error_of("served-model-name: [[a]]"),
            "c.yaml:1: served-model-name has a list within its list");
  EXPECT_EQ(error_of("config: other.yaml"),
            "c.yaml:1: config names this file; one file cannot name another");
  EXPECT_NE(error_of("port 8000\n").find("c.yaml:1: a configuration is lines of"),
            std::string::npos);
  EXPECT_NE(error_of("- a\n").find("not a list"), std::string::npos);
  EXPECT_NE(error_of("a: b: c\n").find("c.yaml:1: this is not YAML: "), std::string::npos);
  EXPECT_NE(error_of("port: 1\n---\nport: 2").find("second document"), std::string::npos);
  EXPECT_NE(error_of("? [a]\n: 1").find("a key is a name, not a list"), std::string::npos);
}

TEST(ConfigFile, BombsEndWhereTheyBegin) {
  EXPECT_EQ(error_of("host: &a x\nserved-model-name: [*a, *a]"),
            "c.yaml:2: aliases (*name) are not used here; write the value itself");
  EXPECT_NE(error_of("<<: *b").find("c.yaml:1: "), std::string::npos);
  const std::string deep_lists = "served-model-name: " + std::string(kMaxConfigBytes - 100, '[');
  EXPECT_NE(error_of(deep_lists).find("c.yaml"), std::string::npos);
  const std::string deep_maps(kMaxConfigBytes - 100, '{');
  EXPECT_NE(error_of(deep_maps).find("c.yaml"), std::string::npos);
  std::string steps;
  for (int depth = 0; depth < 500; ++depth) steps += std::string(depth, ' ') + "a:\n";
  EXPECT_NE(error_of(steps).find("a takes a value, not a mapping"), std::string::npos);
  base::MemoryFileSystem fs;
  fs.put("c.yaml", std::vector<uint8_t>(kMaxConfigBytes + 1, '#'));
  ServeOptions options;
  const absl::Status status = apply_config_file(option_table(), fs, "c.yaml", options);
  EXPECT_EQ(base::message_of(status), "the configuration file c.yaml: larger than 262144 bytes");
}

TEST(ConfigFile, FilesOfConfigsLoad) {
  base::PosixFileSystem fs;
  int n_files = 0;
  const std::filesystem::path folder = std::filesystem::path(PAGODA_TEST_DATA) / "../configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    if (entry.path().filename() == "compose.yaml") continue;  // of Docker
    ServeOptions options;
    const absl::Status status =
        apply_config_file(option_table(), fs, entry.path().string(), options);
    EXPECT_TRUE(status.ok()) << status;
    ++n_files;
  }
  EXPECT_GE(n_files, 2);  // cpu.yaml, tiers.yaml
}

}  // namespace
}  // namespace pagoda
