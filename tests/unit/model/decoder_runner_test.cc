#include "model/decoder_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/model/tiny_model.h"
#include "tests/unit/support/count_allocations.h"

namespace pagoda::model {
namespace {

constexpr int32_t kSlots = 8;
constexpr int32_t kSeqBlocks = 16;  // blocks of each sequence

std::vector<int32_t> random_ids(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % TinyLlama::kVocab);
  return ids;
}

// A runner over a pool in which sequence s owns blocks s, s + kSlots, s + 2 kSlots, …
class DecoderRunnerTest : public ::testing::Test {
 protected:
  DecoderRunnerTest() : backend_(cpu_backend(1)) {
    const TinyLlama tiny{.type = DType::kQ4_1, .rope_scaling = ""};
    model_ = load_tiny(tiny, *backend_);
    runner_ = make_runner();
  }

  std::unique_ptr<DecoderRunner> make_runner() {
    auto runner = DecoderRunner::create(*backend_, model_.config, model_.weights,
                                        {.max_rows = 160, .n_slots = kSlots});
    EXPECT_TRUE(runner.ok()) << runner.status();
    KvView kv = (*runner)->kv_shape().page;
    kv.n_blocks = kSlots * kSeqBlocks;
    if (pool_.bytes() == 0) {
      auto pool = backend_->allocate(static_cast<size_t>(kv.pool_bytes()));
      EXPECT_TRUE(pool.ok());
      pool_ = *std::move(pool);
      for (int32_t seq = 0; seq < kSlots; ++seq) {
        tables_.emplace_back(1);
        for (int32_t i = 0; i < kSeqBlocks; ++i) tables_.back()[0].emplace_back(seq + i * kSlots);
      }
    }
    kv.base = pool_.as<uint8_t>();
    (*runner)->set_kv(kv);
    return *std::move(runner);
  }

  // Adds rows of a sequence to the step that is being made; the last one, or all, are wanted.
  void add(int32_t seq, int32_t position, std::span<const int32_t> ids, Want last,
           Want others = Want::kNone) {
    seqs_.push_back({.row_begin = static_cast<int32_t>(rows_.size()),
                     .n_rows = static_cast<int32_t>(ids.size()),
                     .position = position,
                     .tables = tables_[static_cast<size_t>(seq)]});
    for (size_t i = 0; i < ids.size(); ++i) {
      rows_.push_back({.token = ids[i],
                       .slot = SlotId(seq),
                       .position = position + static_cast<int32_t>(i),
                       .adapter = AdapterId(0),
                       .want = i + 1 == ids.size() ? last : others});
    }
  }
  void ask(int32_t row, int32_t slot, int32_t forced_token = -1, float temperature = 0,
           int32_t choice = 0) {
    SampleRequest request{.row = row, .slot = SlotId(slot), .params = {}};
    request.params.temperature = temperature;
    request.params.forced_token = forced_token;
    request.params.choice = choice;
    request.params.n_top = 0;
    requests_.push_back(request);
  }
  std::span<const ops::SampleResult> run() {
    const Ticket step = runner_->forward({.rows = rows_, .seqs = seqs_});
    const Ticket draws = runner_->sample(step, {.requests = requests_});
    rows_.clear();
    seqs_.clear();
    requests_.clear();
    return runner_->fetch(draws);
  }

  // The greedy answer to a prompt, alone, token by token.
  std::vector<int32_t> answer(const std::vector<int32_t>& prompt, int32_t seq, int n_tokens) {
    std::vector<int32_t> tokens;
    add(seq, 0, prompt, Want::kSample);
    ask(static_cast<int32_t>(prompt.size()) - 1, seq);
    for (int i = 0; i < n_tokens; ++i) {
      tokens.push_back(run()[0].token);
      add(seq, static_cast<int32_t>(prompt.size()) + i, {&tokens.back(), 1}, Want::kSample);
      ask(0, seq);
    }
    rows_.clear();
    seqs_.clear();
    requests_.clear();
    return tokens;
  }

  std::unique_ptr<CpuBackend> backend_;
  TinyModel model_;
  Buffer pool_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // [n_seqs][1][kSeqBlocks]
  std::unique_ptr<DecoderRunner> runner_;
  std::vector<StepRow> rows_;
  std::vector<StepSeq> seqs_;
  std::vector<SampleRequest> requests_;
};

TEST_F(DecoderRunnerTest, SaysWhatItsKvLooksLike) {
  const KvShape& shape = runner_->kv_shape();
  EXPECT_EQ(shape.n_groups, 1);
  EXPECT_EQ(shape.group_windows, std::vector<int32_t>{0});
  EXPECT_EQ(shape.page.n_layers, TinyLlama::kLayers);
  EXPECT_EQ(shape.page.n_kv_heads, TinyLlama::kKvHeads);
  EXPECT_EQ(shape.page.head_dim, TinyLlama::kHeadDim);
  EXPECT_EQ(shape.page.block_size, kPageTokens);
  EXPECT_EQ(shape.page.page_layout, backend_->capabilities().page_layout);
  EXPECT_EQ(runner_->n_vocab(), TinyLlama::kVocab);
  EXPECT_EQ(runner_->n_slots(), kSlots);
  EXPECT_EQ(runner_->max_rows(), 160);
}

TEST_F(DecoderRunnerTest, ASlotRemembersItsLastToken) {
  const std::vector<int32_t> prompt = random_ids(37, 1);
  const std::vector<int32_t> expected = answer(prompt, 0, 6);
  add(1, 0, prompt, Want::kSample);
  ask(36, 1);
  constexpr int32_t kLast[] = {-1};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(run()[0].token, expected[static_cast<size_t>(i)]);
    add(1, 37 + i, kLast, Want::kSample);
    ask(0, 1);
  }
}

TEST_F(DecoderRunnerTest, BatchesGiveTheSoloAnswers) {
  constexpr int kTokens = 8;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> expected;
  for (uint32_t seq = 0; seq < 4; ++seq) {
    prompts.push_back(random_ids(5 + 20 * seq, seq + 10));
    expected.push_back(answer(prompts.back(), static_cast<int32_t>(seq), kTokens));
  }
  // Again in other blocks, sequence s entering at step s, decodes and a prefill mixed.
  constexpr int32_t kLast[] = {-1};
  for (int step = 0; step < kTokens + 3; ++step) {
    std::vector<std::pair<int32_t, int>> drawn;  // sequence, which of its tokens
    for (int32_t seq = 0; seq < 4; ++seq) {
      const int n_before = step - seq;
      if (n_before < 0 || n_before >= kTokens) continue;
      const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(seq)];
      if (n_before == 0) {
        add(seq + 4, 0, prompt, Want::kSample);
      } else {
        add(seq + 4, static_cast<int32_t>(prompt.size()) + n_before - 1, kLast, Want::kSample);
      }
      ask(static_cast<int32_t>(rows_.size()) - 1, seq + 4);
      drawn.emplace_back(seq, n_before);
    }
    const std::span<const ops::SampleResult> results = run();
    for (size_t i = 0; i < drawn.size(); ++i) {
      const auto& [seq, n] = drawn[i];
      EXPECT_EQ(results[i].token, expected[static_cast<size_t>(seq)][static_cast<size_t>(n)])
          << "step " << step << " sequence " << seq;
    }
  }
}

// More rows than are turned into logits at once, asked for in any order and some of them twice.
TEST_F(DecoderRunnerTest, LogProbabilitiesOfEveryRow) {
  const std::vector<int32_t> ids = random_ids(150, 2);
  std::vector<float> expected;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    add(0, static_cast<int32_t>(i), {&ids[i], 1}, Want::kLogprob);
    ask(0, 0, ids[i + 1]);
    expected.push_back(run()[0].logprob);
  }
  double total = 0;
  for (const float logprob : expected) total += std::exp(double{logprob});
  EXPECT_GT(total, 0);

  add(1, 0, ids, Want::kNone, Want::kLogprob);
  std::vector<int32_t> order;
  for (int32_t row = 148; row >= 0; --row) order.push_back(row);
  order.insert(order.end(), {3, 148, 0});
  for (const int32_t row : order) ask(row, 0, ids[static_cast<size_t>(row) + 1]);
  const std::span<const ops::SampleResult> results = run();
  ASSERT_EQ(results.size(), order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(results[i].logprob, expected[static_cast<size_t>(order[i])]) << i;
    EXPECT_EQ(results[i].token, ids[static_cast<size_t>(order[i]) + 1]);
  }
}

// n choices of one prompt: draws of one row into several slots, and a second call to sample.
TEST_F(DecoderRunnerTest, SeveralDrawsOfOneRow) {
  const std::vector<int32_t> prompt = random_ids(20, 3);
  const Ticket step = [&] {
    add(0, 0, prompt, Want::kSample);
    return runner_->forward({.rows = rows_, .seqs = seqs_});
  }();
  for (int32_t choice = 0; choice < kSlots; ++choice) ask(19, choice, -1, 1, choice);
  const Ticket first = runner_->sample(step, {.requests = requests_});
  const Ticket second = runner_->sample(step, {.requests = requests_});
  const std::span<const ops::SampleResult> draws = runner_->fetch(first);
  const std::span<const ops::SampleResult> again = runner_->fetch(second);
  int n_different = 0;
  for (size_t i = 0; i < draws.size(); ++i) {
    EXPECT_EQ(draws[i].token, again[i].token);
    n_different += draws[i].token != draws[0].token ? 1 : 0;
  }
  EXPECT_GT(n_different, 0);
}

TEST_F(DecoderRunnerTest, ALogProbabilityIsNoLastToken) {
  const std::vector<int32_t> prompt = random_ids(10, 4);
  add(0, 0, prompt, Want::kSample, Want::kLogprob);
  ask(9, 0);
  ask(3, 0, prompt[4]);
  const int32_t drawn = run()[0].token;
  constexpr int32_t kLast[] = {-1};
  add(0, 10, kLast, Want::kSample);
  ask(0, 0);
  const float by_slot = run()[0].logprob;
  add(0, 10, {&drawn, 1}, Want::kSample);
  ask(0, 0);
  EXPECT_EQ(run()[0].logprob, by_slot);
}

TEST_F(DecoderRunnerTest, AStepAllocatesNothing) {
  for (int32_t seq = 0; seq < 4; ++seq) answer(random_ids(20, 5), seq, 2);
  constexpr int32_t kLast[] = {-1};
  constexpr ops::TokenCount kCounts[] = {{3, 1}, {9, 2}};
  constexpr int32_t kAllowed[] = {2, 5, 7};
  for (int step = 0; step < 4; ++step) {
    for (int32_t seq = 0; seq < 4; ++seq) {
      add(seq, 21 + step, kLast, Want::kSample);
      ask(seq, seq, -1, 0.8F);
      // Every kind of draw: plain, penalised, filtered, from a list.
      ops::SampleRow& params = requests_.back().params;
      params.counts = kCounts;
      params.n_counts = seq == 1 ? 2 : 0;
      params.frequency_penalty = 0.5F;
      params.top_p = seq == 2 ? 0.9F : 1.0F;
      params.allowed = kAllowed;
      params.n_allowed = seq == 3 ? 3 : 0;
    }
    const int64_t before = test::count_allocations();
    run();
    // The first steps may still grow what sampling keeps.
    if (step >= 2) {
      EXPECT_EQ(test::count_allocations(), before);
    }
  }
}

using DecoderRunnerDeathTest = DecoderRunnerTest;

TEST_F(DecoderRunnerDeathTest, ChecksTicketsAndRows) {
  const std::vector<int32_t> prompt = random_ids(4, 6);
  add(0, 0, prompt, Want::kSample);
  const Ticket old_step = runner_->forward({.rows = rows_, .seqs = seqs_});
  const Ticket step = runner_->forward({.rows = rows_, .seqs = seqs_});
  ask(3, 0);
  EXPECT_DEATH(runner_->sample(old_step, {.requests = requests_}), "check failed");
  const Ticket first = runner_->sample(step, {.requests = requests_});
  const Ticket second = runner_->sample(step, {.requests = requests_});
  runner_->fetch(second);
  EXPECT_DEATH(runner_->fetch(first), "check failed");
  EXPECT_DEATH(runner_->fetch(second), "check failed");
  requests_.clear();
  ask(2, 0);  // a row that nothing was wanted of
  EXPECT_DEATH(runner_->sample(step, {.requests = requests_}), "check failed");
  rows_[0].token = TinyLlama::kVocab;
  EXPECT_DEATH(runner_->forward({.rows = rows_, .seqs = seqs_}), "check failed");
  rows_[0].token = -1;
  rows_[0].slot = SlotId(5);  // has sampled nothing yet
  EXPECT_DEATH(runner_->forward({.rows = rows_, .seqs = seqs_}), "check failed");
}

}  // namespace
}  // namespace pagoda::model
