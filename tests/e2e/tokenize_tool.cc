// Token ids of many strings, for comparison with another tokenizer:
//
//   tokenize_tool MODEL.gguf [--pre NAME] [--parse-special | --parts] [--decode] < strings
//
// Standard input is a sequence of strings, each a u32 length and that many bytes; standard output
// has for each a u32 count and that many u32 ids. With --parts a NUL byte in a string ends a part:
// control tokens count in the first, third, … With --decode a u32 length and the text that the ids
// decode to follow the ids. All numbers are little-endian, as the machine's.
#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/fs.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace pagoda {
namespace {

struct Options {
  std::string model;
  std::string pre_tokenizer;
  model::SpecialTokens special = model::SpecialTokens::kAsText;
  bool parts = false;
  bool decode = false;
};

bool parse_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--pre" && i + 1 < argc) {
      options.pre_tokenizer = argv[++i];
    } else if (arg == "--parse-special") {
      options.special = model::SpecialTokens::kParse;
    } else if (arg == "--parts") {
      options.parts = true;
    } else if (arg == "--decode") {
      options.decode = true;
    } else if (options.model.empty() && !arg.starts_with("--")) {
      options.model = arg;
    } else {
      return false;
    }
  }
  return !options.model.empty();
}

absl::StatusOr<std::unique_ptr<model::Tokenizer>> load(const Options& options) {
  base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(const auto file, model::GgufFile::open(fs, options.model));
  ASSIGN_OR_RETURN(model::Vocabulary vocabulary, model::vocabulary_from_gguf(*file));
  if (!options.pre_tokenizer.empty()) vocabulary.pre_tokenizer = options.pre_tokenizer;
  return model::make_bpe_tokenizer(std::move(vocabulary));
}

std::vector<model::TextPart> split_parts(std::string_view text) {
  std::vector<model::TextPart> parts;
  auto special = model::SpecialTokens::kParse;
  for (;;) {
    const size_t end = text.find('\0');
    parts.push_back({text.substr(0, end), special});
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
    special = special == model::SpecialTokens::kParse ? model::SpecialTokens::kAsText
                                                      : model::SpecialTokens::kParse;
  }
}

bool read_string(std::string& text) {
  uint32_t len = 0;
  if (std::fread(&len, sizeof(len), 1, stdin) != 1) return false;
  text.resize(len);
  return std::fread(text.data(), 1, len, stdin) == len;
}

void write_array(const void* items, size_t item_bytes, size_t n) {
  const auto count = static_cast<uint32_t>(n);
  CHECK_EQ(std::fwrite(&count, sizeof(count), 1, stdout), 1u);
  CHECK_EQ(std::fwrite(items, item_bytes, n, stdout), n);
}

int run(const Options& options) {
  const auto tokenizer = load(options);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", base::message_of(tokenizer.status()));
    return 1;
  }
  std::string text;
  std::vector<model::TokenId> ids;
  while (read_string(text)) {
    ids.clear();
    if (options.parts) {
      (*tokenizer)->encode_parts(split_parts(text), ids);
    } else {
      (*tokenizer)->encode(text, options.special, ids);
    }
    write_array(ids.data(), sizeof(model::TokenId), ids.size());
    if (!options.decode) continue;
    const std::string decoded = model::decode(**tokenizer, ids, false);
    write_array(decoded.data(), 1, decoded.size());
  }
  return 0;
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) {
  pagoda::Options options;
  if (!pagoda::parse_options(argc, argv, options)) {
    fmt::print(stderr,
               "usage: tokenize_tool MODEL.gguf [--pre NAME] [--parse-special | --parts] "
               "[--decode] < strings\n");
    return 2;
  }
  return pagoda::run(options);
}
