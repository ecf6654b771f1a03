#include "server/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/print.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/decoder_runner.h"
#include "model/gguf.h"
#include "server/client/units.h"
#include "server/model_path.h"
#include "server/summary.h"

namespace pagoda {
namespace {

constexpr int64_t kPoolGiB[] = {1, 2, 4, 8, 16, 32, 64};
constexpr size_t kTemplateLines = 4;
constexpr size_t kTemplateColumns = 72;
constexpr size_t kMaxTextBytes = 256;  // of names in the text form

// A text of the header for one line of the terminal.
std::string short_text(std::string_view text, size_t max_bytes) {
  std::string line = printable(text.substr(0, max_bytes));
  // A character that the cut went through.
  while (!line.empty() && line.size() >= max_bytes && (line.back() & 0x80) != 0) line.pop_back();
  std::ranges::replace(line, '\n', ' ');
  std::ranges::replace(line, '\t', ' ');
  return text.size() > max_bytes ? line + "..." : line;
}

std::string string_or(const model::GgufFile& file, std::string_view key, std::string otherwise) {
  const auto value = file.get_string(key);
  return value.ok() ? *value : std::move(otherwise);
}

void add_tokenizer(const model::GgufFile& file, InspectReport& report) {
  report.tokenizer = string_or(file, "tokenizer.ggml.model", "none");
  if (const auto pre = file.get_string("tokenizer.ggml.pre"); pre.ok()) {
    report.tokenizer += ", " + *pre;
  }
  report.chat_template = string_or(file, "tokenizer.chat_template", "");
  const auto vocabulary = model::vocabulary_from_gguf(file);
  if (!vocabulary.ok()) {
    if (report.refusal.empty()) report.refusal = base::message_of(vocabulary.status());
    return;
  }
  report.n_tokens = std::ssize(vocabulary->texts);
  for (const model::TokenId id : vocabulary->end_ids) {
    if (id >= 0 && id < report.n_tokens) {
      report.end_tokens.push_back(vocabulary->texts[static_cast<size_t>(id)]);
    }
  }
}

absl::Status add_kv(const model::ModelConfig& config, InspectReport& report) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CpuBackend> backend, CpuBackend::create({.n_threads = 1}));
  const ServeOptions defaults;
  const model::KvShape shape =
      model::kv_shape_of(config, backend->capabilities(), defaults.block_size);
  report.kv_dtype = dtype_info(shape.page.dtype).name;
  report.block_size = shape.page.block_size;
  report.block_bytes = shape.page.block_bytes();
  report.token_bytes = report.block_bytes * shape.n_groups / report.block_size;
  for (const int64_t context : {int64_t{1024}, int64_t{4096}, int64_t{config.context_len}}) {
    if (context <= config.context_len && !std::ranges::count(report.users.contexts, context)) {
      report.users.contexts.push_back(context);
    }
  }
  for (const int64_t gib : kPoolGiB) {
    const int64_t bytes = gib << 30;
    std::vector<int64_t> row;
    for (const int64_t context : report.users.contexts) {
      row.push_back(
          users_of(bytes / report.block_bytes, context, report.block_size, shape.n_groups));
    }
    report.users.pool_bytes.push_back(bytes);
    report.users.n_users.push_back(std::move(row));
  }
  return absl::OkStatus();
}

std::string row(std::string_view name, std::string_view text) {
  return fmt::format("  {:<15}{}\n", name, text);
}

std::string head_text(const InspectReport& report) {
  std::string text = row("file", fmt::format("{}, {}", report.path, bytes_text(report.file_bytes)));
  if (!report.name.empty()) text += row("name", short_text(report.name, kMaxTextBytes));
  text += row("architecture", short_text(report.architecture, kMaxTextBytes));
  if (report.config.has_value()) {
    const model::ModelConfig& config = *report.config;
    text += row("layers", fmt::format("{}, hidden size {}, feed-forward {}", config.n_layers,
                                      config.hidden_dim, config.ffn_dim));
    text += row("attention", fmt::format("{} heads, {} for KV, of {} dimensions", config.n_heads,
                                         config.n_kv_heads, config.head_dim));
    text += row("context", fmt::format("{} tokens", config.context_len));
  }
  text +=
      row("tokenizer",
          fmt::format(
              "{}, {} tokens{}", short_text(report.tokenizer, 64), report.n_tokens,
              report.end_tokens.empty()
                  ? ""
                  : fmt::format(", an answer ends at {}",
                                short_text(fmt::format("{}", fmt::join(report.end_tokens, " or ")),
                                           kMaxTextBytes))));
  return text;
}

std::string template_text(std::string_view text) {
  if (text.empty()) return row("chat template", "none");
  const auto n_lines = std::ranges::count(text, '\n') + 1;
  std::string result = row("chat template", fmt::format("{} bytes, {} {}", text.size(), n_lines,
                                                        n_lines == 1 ? "line" : "lines"));
  for (size_t i = 0; i < kTemplateLines && !text.empty(); ++i) {
    const size_t end = std::min(text.find('\n'), text.size());
    result += fmt::format("    {}\n", short_text(text.substr(0, end), kTemplateColumns));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!text.empty()) result += "    ...\n";
  return result;
}

std::string facts_text(const ModelFacts& facts) {
  const auto share = [](int64_t part, int64_t all) {
    return all == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(all);
  };
  std::string text =
      fmt::format("\n  {:<15}{:>10}\n", "parameters", count_text(facts.n_parameters));
  for (size_t i = 0; i < kNumModelParts; ++i) {
    const int64_t n = facts.part_parameters[i];
    if (n == 0) continue;
    text += fmt::format("    {:<13}{:>10}{:>8.1f} %\n", model_part_name(static_cast<ModelPart>(i)),
                        count_text(n), share(n, facts.n_parameters));
  }
  text += fmt::format("\n  {:<15}{:>10}{:>12}{:>14}\n", "type", "tensors", "parameters", "bytes");
  for (const TypeUse& use : facts.types) {
    text += fmt::format("    {:<13}{:>10}{:>12}{:>14}\n", dtype_info(use.type).name, use.n_tensors,
                        count_text(use.n_parameters), bytes_text(use.n_bytes));
  }
  return text;
}

std::string kv_text(const InspectReport& report) {
  std::string text = fmt::format("\n  KV cache: {} a token, {} a block of {} tokens ({})\n",
                                 bytes_text(report.token_bytes), bytes_text(report.block_bytes),
                                 report.block_size, report.kv_dtype);
  text += "\n  users whose KV fits, by size of the KV pool and tokens of each\n";
  text += fmt::format("    {:<13}", "pool");
  for (const int64_t context : report.users.contexts) text += fmt::format("{:>10}", context);
  text += "\n";
  for (size_t i = 0; i < report.users.pool_bytes.size(); ++i) {
    text += fmt::format("    {:<13}", fmt::format("{} GiB", report.users.pool_bytes[i] >> 30));
    for (const int64_t n : report.users.n_users[i]) text += fmt::format("{:>10}", n);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json config_json(const model::ModelConfig& config) {
  return {{"n_layers", config.n_layers},       {"hidden_dim", config.hidden_dim},
          {"ffn_dim", config.ffn_dim},         {"n_heads", config.n_heads},
          {"n_kv_heads", config.n_kv_heads},   {"head_dim", config.head_dim},
          {"n_vocab", config.n_vocab},         {"context_len", config.context_len},
          {"tied_output", config.tied_output}, {"rope_freq_base", config.rope.freq_base}};
}

}  // namespace

absl::StatusOr<InspectReport> inspect_model(base::FileSystem& fs, const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<model::GgufFile> file, model::GgufFile::open(fs, path));
  InspectReport report;
  report.path = path;
  report.facts = facts_of(*file);
  report.architecture = string_or(*file, "general.architecture", "not named");
  report.name = string_or(*file, "general.name", "");
  ASSIGN_OR_RETURN(const std::unique_ptr<base::MappedFile> mapped, fs.map(path));
  report.file_bytes = std::ssize(mapped->bytes());
  auto config = model::config_from_gguf(*file);
  if (config.ok()) {
    report.config = *std::move(config);
    RETURN_IF_ERROR(add_kv(*report.config, report));
  } else {
    report.refusal = base::message_of(config.status());
  }
  add_tokenizer(*file, report);
  return report;
}

std::string inspect_text(const InspectReport& report) {
  std::string text = head_text(report) + template_text(report.chat_template);
  text += facts_text(report.facts);
  if (report.config.has_value()) text += kv_text(report);
  if (!report.refusal.empty()) {
    text += fmt::format("\n  Pagoda does not run this model: {}\n", printable(report.refusal));
  }
  return text;
}

std::string inspect_json(const InspectReport& report) {
  using Json = nlohmann::ordered_json;
  Json parts = Json::object();
  for (size_t i = 0; i < kNumModelParts; ++i) {
    parts[std::string(model_part_name(static_cast<ModelPart>(i)))] =
        report.facts.part_parameters[i];
  }
  Json types = Json::array();
  for (const TypeUse& use : report.facts.types) {
    types.push_back({{"type", dtype_info(use.type).name},
                     {"tensors", use.n_tensors},
                     {"parameters", use.n_parameters},
                     {"bytes", use.n_bytes}});
  }
  Json json = {
      {"path", report.path},
      {"file_bytes", report.file_bytes},
      {"architecture", report.architecture},
      {"name", report.name},
      {"tensors", report.facts.n_tensors},
      {"parameters", report.facts.n_parameters},
      {"parameters_by_part", std::move(parts)},
      {"types", std::move(types)},
      {"tokenizer",
       {{"kind", report.tokenizer},
        {"tokens", report.n_tokens},
        {"end_tokens", report.end_tokens}}},
      {"chat_template", report.chat_template.empty() ? Json() : Json(report.chat_template)},
      {"refusal", report.refusal.empty() ? Json() : Json(report.refusal)}};
  if (report.config.has_value()) {
    json["config"] = config_json(*report.config);
    json["kv"] = {{"dtype", report.kv_dtype},
                  {"block_size", report.block_size},
                  {"block_bytes", report.block_bytes},
                  {"token_bytes", report.token_bytes},
                  {"users",
                   {{"contexts", report.users.contexts},
                    {"pool_bytes", report.users.pool_bytes},
                    {"n_users", report.users.n_users}}}};
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status run_inspect(const CommandLine& line, const GetEnvironment& environment) {
  base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(const std::string path, find_model(line.options.model, environment));
  ASSIGN_OR_RETURN(const InspectReport report, inspect_model(fs, path));
  const std::string text = line.json ? inspect_json(report) : inspect_text(report);
  base::print(stdout, text);
  return absl::OkStatus();
}

}  // namespace pagoda
