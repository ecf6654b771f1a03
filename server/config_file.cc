#include "server/config_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <istream>
#include <map>
#include <optional>
#include <streambuf>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pagoda {
namespace {

// What ends the parser from inside an event; never leaves this file.
struct Refused {
  YAML::Mark mark;
  std::string text;
};

template <typename... Args>
[[noreturn]] void refuse(const YAML::Mark& mark, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw Refused{mark, fmt::format(format, std::forward<Args>(args)...)};
}

struct Entry {
  std::string key;  // with dashes
  YAML::Mark mark;  // of the key
  bool is_list = false;
  std::vector<std::string> values;
};

// Takes the parser's events, which come as the text is read, so that nothing is built of what no
// option could be.
//
//   depth 0 ─ map ─▶ depth 1: key, value, key, value … ─ list ─▶ depth 2: value, value …
class Reader final : public YAML::EventHandler {
 public:
  std::vector<Entry> take() { return std::move(entries_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++n_documents_ > 1) refuse(mark, "a second document begins here; a file has one");
  }
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not used here; write the value itself");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    if (depth_ == 0) return;  // an empty file
    if (at_key()) refuse(mark, "a key is missing");
    const Entry& entry = entries_.back();
    refuse(entry.mark, "{} has no value; leave the line out for the default", entry.key);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (depth_ == 0) refuse(mark, "a configuration is lines of \"name: value\"");
    if (at_key()) return open(mark, value);
    // A plain ~ or nothing is a null that the parser hands on as text.
    if (tag == "?" && (value == "~" || value == "null")) return OnNull(mark, 0);
    entries_.back().values.push_back(value);
    if (depth_ == 1) in_entry_ = false;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    if (depth_ == 0) refuse(mark, "a configuration is lines of \"name: value\", not a list");
    if (at_key()) refuse(mark, "a key is a name, not a list");
    if (depth_ == 2) refuse(mark, "{} has a list within its list", entries_.back().key);
    entries_.back().is_list = true;
    ++depth_;
  }
  void OnSequenceEnd() override { leave(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    if (depth_ == 0) {
      ++depth_;
      return;
    }
    if (at_key()) refuse(mark, "a key is a name, not a mapping");
    refuse(mark, "{} takes a value, not a mapping; options are not nested", entries_.back().key);
  }
  void OnMapEnd() override { leave(); }

 private:
  bool at_key() const { return depth_ == 1 && !in_entry_; }
  void open(const YAML::Mark& mark, const std::string& key) {
    Entry entry{key, mark, false, {}};
    std::ranges::replace(entry.key, '_', '-');
    entries_.push_back(std::move(entry));
    in_entry_ = true;
  }
  void leave() {
    --depth_;
    in_entry_ = false;
  }

  int n_documents_ = 0;
  int depth_ = 0;
  bool in_entry_ = false;  // a key was read and its value not yet
  std::vector<Entry> entries_;
};

// A stream over a text that stays where it is.
class TextBuffer final : public std::streambuf {
 public:
  explicit TextBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());  // only read, as there is no overflow()
    setg(begin, begin, begin + text.size());
  }
};

// The options of a file in their order, or what ended the reading.
std::vector<Entry> read_entries(std::string_view text) {
  TextBuffer buffer(text);
  std::istream stream(&buffer);
  YAML::Parser parser(stream);
  Reader reader;
  while (parser.HandleNextDocument(reader)) {
  }
  return reader.take();
}

std::string unknown_key(std::span<const Option> table, const std::string& key) {
  std::vector<std::string> names = {"model"};
  for (const Option& option : table) {
    if (option.value_name.empty() && key == "no-" + option.name) {
      return fmt::format("there is no option {}; write {}: false", key, option.name);
    }
    names.push_back(option.name);
  }
  if (const auto near = nearest_name(key, names); near.has_value()) {
    return fmt::format("there is no option {}; is {} meant?", key, *near);
  }
  return fmt::format("there is no option {}; `pagoda serve --help` lists them all", key);
}

// Errors lack the place.
absl::Status apply_entry(std::span<const Option> table, const Entry& entry, ServeOptions& options) {
  if (entry.key == "config") {
    return base::invalid_argument("config names this file; one file cannot name another");
  }
  const auto option =
      std::ranges::find_if(table, [&](const Option& each) { return each.name == entry.key; });
  if (option == table.end() && entry.key != "model") {
    return base::invalid_argument("{}", unknown_key(table, entry.key));
  }
  const bool repeatable = option != table.end() && option->repeatable;
  if (entry.is_list && !repeatable) {
    return base::invalid_argument("{} takes one value, not a list", entry.key);
  }
  if (entry.values.empty()) return base::invalid_argument("{} is an empty list", entry.key);
  if (option != table.end()) return apply_option(*option, entry.values, entry.key, options);
  if (entry.values.front().empty()) return base::invalid_argument("model takes a GGUF file");
  options.model = entry.values.front();
  return absl::OkStatus();
}

absl::Status error_at(const std::string& path, const YAML::Mark& mark, std::string_view text) {
  // Marks count from 0; the parser gives -1 when it does not know.
  if (mark.line < 0) return base::invalid_argument("{}: {}", path, text);
  return base::invalid_argument("{}:{}: {}", path, mark.line + 1, text);
}

}  // namespace

absl::Status apply_config_text(std::span<const Option> table, std::string_view text,
                               const std::string& path, ServeOptions& options) {
  std::vector<Entry> entries;
  try {
    entries = read_entries(text);
  } catch (const Refused& refused) {
    return error_at(path, refused.mark, refused.text);
  } catch (const YAML::Exception& error) {
    return error_at(path, error.mark, fmt::format("this is not YAML: {}", error.msg));
  }
  std::map<std::string_view, int> lines;
  for (const Entry& entry : entries) {
    const auto [first, is_new] = lines.emplace(entry.key, entry.mark.line + 1);
    if (!is_new) {
      return error_at(path, entry.mark,
                      fmt::format("{} is set already in line {}", entry.key, first->second));
    }
    const absl::Status status = apply_entry(table, entry, options);
    if (!status.ok()) return error_at(path, entry.mark, base::message_of(status));
  }
  return absl::OkStatus();
}

absl::Status apply_config_file(std::span<const Option> table, base::FileSystem& fs,
                               const std::string& path, ServeOptions& options) {
  absl::StatusOr<std::string> text = fs.read(path, kMaxConfigBytes);
  if (!text.ok()) {
    return base::status_error(text.status().code(), "the configuration file {}",
                              base::message_of(text.status()));
  }
  return apply_config_text(table, *text, path, options);
}

}  // namespace pagoda
