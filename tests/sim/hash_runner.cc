#include "tests/sim/hash_runner.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pagoda::sim {
namespace {

// SplitMix64's finaliser (Steele et al. 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t fold(uint64_t sum, uint64_t value) { return mix(sum * 31 + value); }

uint64_t kv_of(uint64_t before, int32_t token, int32_t position, int32_t adapter, int32_t group) {
  uint64_t hash = fold(before, static_cast<uint64_t>(token));
  hash = fold(hash, static_cast<uint64_t>(position));
  hash = fold(hash, static_cast<uint64_t>(adapter));
  return fold(hash, static_cast<uint64_t>(group));
}

int32_t draw(uint64_t hash, const ops::SampleRow& params, int32_t n_vocab) {
  hash = fold(hash, params.seed);
  hash = fold(hash, static_cast<uint64_t>(params.choice));
  hash = fold(hash, static_cast<uint64_t>(params.position));
  auto token = static_cast<int32_t>(hash % static_cast<uint64_t>(n_vocab));
  const std::span<const ops::LogitBias> bias(params.bias, static_cast<size_t>(params.n_bias));
  const auto is_banned = [&](int32_t id) {
    return std::ranges::any_of(
        bias, [&](const ops::LogitBias& b) { return b.token == id && std::isinf(b.value); });
  };
  while (is_banned(token)) token = (token + 1) % n_vocab;
  return token;
}

}  // namespace

HashRunner::HashRunner(HashRunnerConfig config)
    : config_(config),
      pool_(static_cast<size_t>(config.n_blocks) * static_cast<size_t>(config.block_size), 0xdead),
      slot_token_(static_cast<size_t>(config.n_slots), -1) {
  shape_.n_groups = config.n_groups;
  shape_.group_windows.resize(static_cast<size_t>(config.n_groups), 0);
}

uint64_t& HashRunner::value(BlockId block, int32_t offset) {
  CHECK(block.value() >= 0 && block.value() < config_.n_blocks);
  return pool_[static_cast<size_t>(block.value()) * static_cast<size_t>(config_.block_size) +
               static_cast<size_t>(offset)];
}

uint64_t HashRunner::fold_before(std::span<const BlockId> table, int32_t position) {
  uint64_t sum = 0;
  for (int32_t p = 0; p < position; ++p) {
    sum = fold(sum,
               value(table[static_cast<size_t>(p / config_.block_size)], p % config_.block_size));
  }
  return sum;
}

model::Ticket HashRunner::forward(const model::StepInputs& inputs) {
  CHECK_LE(static_cast<int32_t>(inputs.rows.size()), config_.max_rows);
  row_hash_.assign(inputs.rows.size(), 0);
  for (const model::StepSeq& seq : inputs.seqs) {
    CHECK_EQ(seq.tables.size(), static_cast<size_t>(config_.n_groups));
    for (int32_t i = 0; i < seq.n_rows; ++i) {
      const auto row_index = static_cast<size_t>(seq.row_begin + i);
      const model::StepRow& row = inputs.rows[row_index];
      CHECK_EQ(row.position, seq.position + i);
      const int32_t token =
          row.token >= 0 ? row.token : slot_token_[static_cast<size_t>(row.slot.value())];
      CHECK_GE(token, 0);
      for (int32_t g = 0; g < config_.n_groups; ++g) {
        const std::vector<BlockId>& table = seq.tables[static_cast<size_t>(g)];
        const uint64_t kv =
            kv_of(fold_before(table, row.position), token, row.position, row.adapter.value(), g);
        value(table[static_cast<size_t>(row.position / config_.block_size)],
              row.position % config_.block_size) = kv;
        row_hash_[row_index] = fold(row_hash_[row_index], kv);
      }
    }
  }
  n_rows_run_ += static_cast<int64_t>(inputs.rows.size());
  return {next_ticket_++};
}

model::Ticket HashRunner::sample(model::Ticket step, const model::SampleInputs& inputs) {
  CHECK_EQ(step.id + 1, next_ticket_);
  results_.clear();
  for (const model::SampleRequest& request : inputs.requests) {
    ops::SampleResult result{};
    result.token = request.params.forced_token;
    if (result.token < 0) {
      result.token =
          draw(row_hash_[static_cast<size_t>(request.row)], request.params, config_.n_vocab);
      slot_token_[static_cast<size_t>(request.slot.value())] = result.token;
    }
    results_.push_back(result);
  }
  return {next_ticket_++};
}

std::span<const ops::SampleResult> HashRunner::fetch(model::Ticket draws) {
  CHECK_EQ(draws.id + 1, next_ticket_);
  return results_;
}

std::vector<int32_t> HashRunner::solo_answer(const HashRunnerConfig& config,
                                             const SoloRequest& request) {
  std::vector<int32_t> tokens(request.prompt.begin(), request.prompt.end());
  std::vector<uint64_t> sums(static_cast<size_t>(config.n_groups), 0);
  std::vector<ops::LogitBias> no_end;
  for (const int32_t id : request.banned_ids) no_end.push_back({id, -INFINITY});
  uint64_t hash = 0;
  int32_t done = 0;
  for (int32_t n_output = 0; n_output < request.max_tokens; ++n_output) {
    for (; done < static_cast<int32_t>(tokens.size()); ++done) {
      hash = 0;
      for (int32_t g = 0; g < config.n_groups; ++g) {
        uint64_t& sum = sums[static_cast<size_t>(g)];
        const uint64_t kv = kv_of(sum, tokens[static_cast<size_t>(done)], done, request.adapter, g);
        sum = fold(sum, kv);
        hash = fold(hash, kv);
      }
    }
    ops::SampleRow params;
    params.seed = request.seed;
    params.choice = request.choice;
    params.position = n_output;
    if (n_output < request.min_tokens) {
      params.bias = no_end.data();
      params.n_bias = static_cast<int32_t>(no_end.size());
    }
    const int32_t token = draw(hash, params, config.n_vocab);
    const bool ends = std::ranges::find(request.stop_ids, token) != request.stop_ids.end();
    if (n_output >= request.min_tokens && ends) break;
    tokens.push_back(token);
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()));
  return tokens;
}

}  // namespace pagoda::sim
