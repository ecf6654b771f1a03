// The texts of --help: what each command is, and how its flags are laid out in 80 columns.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pagoda {

struct CommandText {
  std::string_view name;
  std::string_view usage;    // after the name
  std::string_view summary;  // one line
  std::string_view notes;    // paragraphs under the flags; may be empty
  std::string_view examples;
};

std::span<const CommandText> command_texts();
std::span<const CommandText> kv_command_texts();  // "kv inspect" and the like
const CommandText& command_text(std::string_view name);

// What is typed after `pagoda`: "serve", "kv inspect".
std::string command_name(const CLI::App& app);

// `pagoda --help`.
std::string overview();

// Words of `text` in lines of at most 80 columns, each but the first after `indent` blanks; the
// first begins in column `at`.
std::string wrapped(std::string_view text, size_t indent, size_t at);

// Lays out the help of a command: its usage, flags by group, notes and examples. Shared, as CLI11
// wants it.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace pagoda
