#include "tests/sim/hash_runner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

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
  for (int32_t i = 0; i < params.n_counts; ++i) {
    hash = fold(hash, static_cast<uint64_t>(params.counts[i].token));
    hash = fold(hash, static_cast<uint64_t>(params.counts[i].n_output));
  }
  for (const float penalty :
       {params.repetition_penalty, params.presence_penalty, params.frequency_penalty}) {
    if (params.n_counts > 0) hash = fold(hash, std::bit_cast<uint32_t>(penalty));
  }
  const std::span<const ops::LogitBias> bias(params.bias, static_cast<size_t>(params.n_bias));
  const auto is_banned = [&](int32_t id) {
    return std::ranges::any_of(
        bias, [&](const ops::LogitBias& b) { return b.token == id && std::isinf(b.value); });
  };
  const int32_t n = params.n_allowed > 0 ? params.n_allowed : n_vocab;
  const auto first = static_cast<int32_t>(hash % static_cast<uint64_t>(n));
  for (int32_t i = 0; i < n; ++i) {
    const int32_t at = (first + i) % n;
    const int32_t token = params.n_allowed > 0 ? params.allowed[at] : at;
    if (!is_banned(token)) return token;
  }
  return -1;
}

// Every token that has been, counted anew.
std::vector<ops::TokenCount> count_tokens(const HashRunner::SoloRequest& request,
                                          std::span<const int32_t> tokens) {
  const bool repetition = request.repetition_penalty != 1;
  if (!repetition && request.presence_penalty == 0 && request.frequency_penalty == 0) return {};
  std::map<int32_t, int32_t> n_output;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool in_prompt = i < request.prompt.size();
    if (!in_prompt || repetition) n_output[tokens[i]] += in_prompt ? 0 : 1;
  }
  std::vector<ops::TokenCount> counts;
  for (const auto& [token, n] : n_output) counts.push_back({token, n});
  return counts;
}

std::vector<ops::LogitBias> bans(const HashRunner::SoloRequest& request,
                                 const std::vector<int32_t>& tokens) {
  std::vector<ops::LogitBias> bans;
  if (tokens.size() - request.prompt.size() < static_cast<size_t>(request.min_tokens)) {
    for (const int32_t id : request.banned_ids) bans.push_back({id, -INFINITY});
  }
  for (const std::vector<int32_t>& word : request.bad_words) {
    std::vector<int32_t> end = tokens;
    end.push_back(word.back());
    if (end.size() < word.size()) continue;
    if (std::equal(word.rbegin(), word.rend(), end.rbegin())) {
      bans.push_back({word.back(), -INFINITY});
    }
  }
  return bans;
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

void HashRunner::copy_block(BlockId from, BlockId to) {
  for (int32_t i = 0; i < config_.block_size; ++i) value(to, i) = value(from, i);
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

HashRunner::SoloAnswer HashRunner::solo_answer(const HashRunnerConfig& config,
                                               const SoloRequest& request) {
  SoloAnswer answer;
  std::vector<int32_t> tokens(request.prompt.begin(), request.prompt.end());
  std::vector<uint64_t> sums(static_cast<size_t>(config.n_groups), 0);
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
    const std::vector<ops::TokenCount> counts = count_tokens(request, tokens);
    const std::vector<ops::LogitBias> banned = bans(request, tokens);
    const ops::SampleRow params = {.seed = request.seed,
                                   .choice = request.choice,
                                   .position = n_output,
                                   .allowed = request.allowed_ids.data(),
                                   .n_allowed = static_cast<int32_t>(request.allowed_ids.size()),
                                   .bias = banned.data(),
                                   .n_bias = static_cast<int32_t>(banned.size()),
                                   .counts = counts.data(),
                                   .n_counts = static_cast<int32_t>(counts.size()),
                                   .repetition_penalty = request.repetition_penalty,
                                   .frequency_penalty = request.frequency_penalty,
                                   .presence_penalty = request.presence_penalty};
    const int32_t token = draw(hash, params, config.n_vocab);
    answer.is_stuck = token < 0;
    if (answer.is_stuck) break;
    const bool ends = std::ranges::find(request.stop_ids, token) != request.stop_ids.end();
    if (n_output >= request.min_tokens && ends) {
      answer.stop_token = token;
      break;
    }
    tokens.push_back(token);
  }
  answer.tokens.assign(tokens.begin() + std::ssize(request.prompt), tokens.end());
  return answer;
}

}  // namespace pagoda::sim
