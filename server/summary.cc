#include "server/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/client/units.h"

namespace pagoda {
namespace {

std::string model_text(const Summary& summary) {
  const model::ModelConfig& config = summary.config;
  std::string text = printable(summary.served_name);
  if (!config.name.empty() && config.name != summary.served_name) {
    text += fmt::format(": {}", printable(config.name));
  }
  return text + fmt::format(", {} parameters", count_text(summary.facts.n_parameters));
}

std::string file_text(const Summary& summary) {
  std::string text = bytes_text(summary.facts.tensor_bytes);
  if (!summary.facts.types.empty()) {
    const TypeUse& most = summary.facts.types.front();
    const bool all = summary.facts.types.size() == 1;
    text += fmt::format(", {}{}", all ? "" : "mostly ", dtype_info(most.type).name);
  }
  return text;
}

std::string shape_text(const Summary& summary) {
  const model::ModelConfig& config = summary.config;
  return fmt::format("{}, {} layers, {} heads ({} for KV), context {}", config.architecture,
                     config.n_layers, config.n_heads, config.n_kv_heads, config.context_len);
}

// "32 users of 512 tokens, 8 of 2048, 2 of 8192"
std::string room_text(const Summary& summary) {
  const int64_t n_blocks = summary.pool_bytes / summary.block_bytes;
  const int64_t tokens = n_blocks / summary.n_groups * summary.block_size;
  std::string text = fmt::format("{} tokens:", tokens);
  std::vector<int32_t> lengths = {512, 2048, summary.max_model_len};
  std::erase_if(lengths, [&](int32_t len) { return len > summary.max_model_len; });
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  bool first = true;
  for (const int32_t len : lengths) {
    const int64_t users = users_of(n_blocks, len, summary.block_size, summary.n_groups);
    text += first ? fmt::format(" {} {} of {} tokens", users, users == 1 ? "user" : "users", len)
                  : fmt::format(", {} of {}", users, len);
    first = false;
  }
  return text;
}

// What a lower tier holds, in tokens.
std::string tier_text(const Summary& summary, int64_t bytes) {
  const int64_t n_ordinals = bytes / summary.block_bytes / summary.n_groups;
  return fmt::format("{} ({} tokens)", bytes_text(bytes), n_ordinals * summary.block_size);
}

std::string tiers_text(const Summary& summary) {
  std::string text = "host ";
  if (summary.kv_host_bytes > 0) {
    text += tier_text(summary, summary.kv_host_bytes);
  } else {
    text += summary.device == "cpu" ? "none, the pool is host memory itself (--kv-host-size)"
                                    : "none (--kv-host-size)";
  }
  if (summary.kv_ssd_path.empty()) return text + "; SSD none (--kv-ssd-path)";
  return text + fmt::format("; SSD {} in {}, written {}", tier_text(summary, summary.kv_ssd_bytes),
                            printable(summary.kv_ssd_path), summary.kv_ssd_write);
}

}  // namespace

int64_t users_of(int64_t n_blocks, int64_t context_len, int32_t block_size, int32_t n_groups) {
  const int64_t blocks = (context_len + block_size - 1) / block_size * n_groups;
  return blocks == 0 ? 0 : n_blocks / blocks;
}

std::vector<SummaryItem> summary_items(const Summary& summary) {
  const std::string host = summary.host.find(':') == std::string::npos
                               ? summary.host
                               : fmt::format("[{}]", summary.host);
  const std::string url = fmt::format("http://{}:{}", host, summary.port);
  const int64_t token_bytes = summary.block_bytes * summary.n_groups / summary.block_size;
  std::vector<SummaryItem> items = {
      {"model", model_text(summary)},
      {"file", file_text(summary)},
      {"shape", shape_text(summary)},
      {"compute", fmt::format("{}, {} kernels, {} {}", summary.device, summary.kernel_set,
                              summary.n_threads, summary.n_threads == 1 ? "thread" : "threads")},
      {"memory",
       fmt::format("weights {}, KV pool {} ({} a token)", bytes_text(summary.weight_bytes),
                   bytes_text(summary.pool_bytes), bytes_text(token_bytes))},
      {"KV room", room_text(summary)},
      {"prefixes", summary.prefix_caching ? "kept and shared between requests"
                                          : "not kept (--no-enable-prefix-caching)"},
      {"tiers", tiers_text(summary)},
      {"at once", fmt::format("{} answers; {} more wait", summary.max_num_seqs, summary.max_queue)},
  };
  if (!summary.context_note.empty()) {
    items.push_back(
        {"context", fmt::format("{} tokens: {}", summary.max_model_len, summary.context_note)});
  }
  items.push_back({"address", url});
  items.push_back(
      {"try", fmt::format("curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
                          "  -d '{}'",
                          url, R"({"messages": [{"role": "user", "content": "Name a river."}]})")});
  return items;
}

std::string summary_block(const Summary& summary) {
  std::string text;
  for (const SummaryItem& item : summary_items(summary)) {
    text += fmt::format("  {:<11}", item.name);
    for (const char c : item.text) {
      text += c;
      if (c == '\n') text += std::string(13, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace pagoda
