// Same answer, always: a row's result is the same, bit for bit, alone or in any batch, in any chunk
// of a prompt, with any number of threads.
#include "tests/ops/op_cases.h"

namespace pagoda::test {
namespace {

constexpr int32_t kHeads = 6;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeadDim = 72;  // not whole registers
constexpr int32_t kRowLen = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int32_t kOutLen = kHeads * kHeadDim;
constexpr int32_t kBlockSize = 32;

// A number of sequences with their inputs (q, k and v before rotation), run through rope_angles,
// rope_kv_write and attention as a model would, in steps of any shape.
class Conversations {
 public:
  Conversations(PageLayout layout, DType dtype, int32_t window, std::vector<int32_t> lens)
      : lens_(std::move(lens)), window_(window), kv_(shape_of(dtype, lens_), layout) {
    std::mt19937_64 random(11);
    ShuffledBlocks pool(kv_.view.n_blocks, random);
    for (int32_t len : lens_) {
      tables_.push_back(pool.take(blocks_for(len, kBlockSize)));
      inputs_.push_back(random_floats(random, int64_t{len} * kRowLen));
      outputs_.emplace_back(static_cast<size_t>(len) * kOutLen);
    }
    for (int32_t i = 0; i < kHeadDim / 2; ++i) {
      inv_freq_.push_back(static_cast<float>(std::pow(1e4, -2.0 * i / kHeadDim)));
    }
  }

  struct Piece {
    int32_t seq;
    int32_t start;
    int32_t count;
  };

  // One step: the rows of all pieces in one batch.
  void step(Backend& backend, const std::vector<Piece>& pieces) {
    std::vector<float> qkv;
    std::vector<int32_t> positions;
    std::vector<ops::KvSlot> slots;
    std::vector<ops::AttentionSeq> seqs;
    for (const Piece& piece : pieces) {
      const auto seq = static_cast<size_t>(piece.seq);
      seqs.push_back(
          {static_cast<int32_t>(positions.size()), piece.count, piece.start, tables_[seq].data()});
      const auto first = inputs_[seq].begin() + int64_t{piece.start} * kRowLen;
      qkv.insert(qkv.end(), first, first + int64_t{piece.count} * kRowLen);
      for (int32_t t = piece.start; t < piece.start + piece.count; ++t) {
        positions.push_back(t);
        slots.push_back(slot_of(tables_[seq], t, kBlockSize));
      }
    }
    const auto n_rows = static_cast<int32_t>(positions.size());
    std::vector<float> cos_sin(positions.size() * kHeadDim);
    ops::rope_angles(backend, {.positions = positions.data(),
                               .inv_freq = inv_freq_.data(),
                               .cos_sin = cos_sin.data(),
                               .n_rows = n_rows,
                               .rope_dim = kHeadDim});
    ops::rope_kv_write(backend, {.qkv = qkv.data(),
                                 .cos_sin = cos_sin.data(),
                                 .slots = slots.data(),
                                 .kv = &kv_.view,
                                 .n_rows = n_rows,
                                 .n_heads = kHeads,
                                 .rope_dim = kHeadDim});
    std::vector<float> out(positions.size() * kOutLen);
    ops::plan_attention(backend,
                        {.kv = &kv_.view, .n_heads = kHeads, .window = window_, .seqs = seqs});
    ops::attention(backend, {.q = qkv.data(),
                             .q_stride = kRowLen,
                             .out = out.data(),
                             .kv = &kv_.view,
                             .n_heads = kHeads,
                             .scale = 0.125F,
                             .window = window_,
                             .seqs = seqs});
    auto from = out.begin();
    for (const Piece& piece : pieces) {
      auto to = outputs_[static_cast<size_t>(piece.seq)].begin() + int64_t{piece.start} * kOutLen;
      std::copy(from, from + int64_t{piece.count} * kOutLen, to);
      from += int64_t{piece.count} * kOutLen;
    }
  }

  // The whole prompt of one sequence, `chunk` rows a step.
  void prefill(Backend& backend, int32_t seq, int32_t chunk) {
    const int32_t len = lens_[static_cast<size_t>(seq)];
    for (int32_t start = 0; start < len; start += chunk) {
      step(backend, {{seq, start, std::min(chunk, len - start)}});
    }
  }
  int32_t size() const { return static_cast<int32_t>(lens_.size()); }
  int32_t len(int32_t seq) const { return lens_[static_cast<size_t>(seq)]; }
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }
  const std::vector<uint8_t>& pages() const { return kv_.bytes(); }

 private:
  static KvView shape_of(DType dtype, const std::vector<int32_t>& lens) {
    int32_t used = 0;
    for (int32_t len : lens) used += blocks_for(len, kBlockSize);
    return {.dtype = dtype,
            .n_blocks = used + used / 2 + 1,
            .block_size = kBlockSize,
            .n_layers = 1,
            .n_kv_heads = kKvHeads,
            .head_dim = kHeadDim};
  }

  std::vector<int32_t> lens_;
  int32_t window_;
  PoisonedKv kv_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<float>> inputs_;   // of each sequence [len, kRowLen]
  std::vector<std::vector<float>> outputs_;  // of each sequence [len, kOutLen]
  std::vector<float> inv_freq_;
};

class SameAnswerThreads : public testing::TestWithParam<std::string> {};

TEST_P(SameAnswerThreads, AttentionInAnyChunks) {
  for (const auto& [dtype, window] :
       {std::pair{DType::kF16, 0}, std::pair{DType::kF32, 0}, std::pair{DType::kF16, 200}}) {
    constexpr int32_t kLen = 1100;  // three pieces of attention
    const auto solo = make_backend({GetParam(), 1});
    const PageLayout layout = solo->capabilities().page_layout;
    Conversations whole(layout, dtype, window, {kLen});
    whole.prefill(*solo, 0, kLen);
    int32_t n_threads = 1;
    for (int32_t chunk : {1, 3, 7, 16, 64, 500, kLen}) {
      if (kSanitized && chunk < 7) continue;
      const auto backend = make_backend({GetParam(), n_threads});
      Conversations parts(layout, dtype, window, {kLen});
      parts.prefill(*backend, 0, chunk);
      EXPECT_TRUE(same_bits(parts.outputs()[0], whole.outputs()[0]))
          << "chunk " << chunk << ", " << n_threads << " threads, window " << window;
      EXPECT_EQ(parts.pages(), whole.pages()) << chunk;
      n_threads = n_threads % 8 + 1;
    }
  }
}

TEST_P(SameAnswerThreads, AttentionWithAnyThreads) {
  const auto solo = make_backend({GetParam(), 1});
  const PageLayout layout = solo->capabilities().page_layout;
  const std::vector<int32_t> lens = {1500, 40};
  Conversations alone(layout, DType::kF16, 0, lens);
  alone.prefill(*solo, 0, 97);
  alone.prefill(*solo, 1, 40);
  for (int32_t n_threads = 1; n_threads <= 8; n_threads += kSanitized ? 3 : 1) {
    const auto backend = make_backend({GetParam(), n_threads});
    Conversations threaded(layout, DType::kF16, 0, lens);
    threaded.step(*backend, {{0, 0, 1200}, {1, 0, 39}});
    threaded.step(*backend, {{0, 1200, 290}});
    for (int32_t t = 1490; t < 1500; ++t) threaded.step(*backend, {{0, t, 1}});
    threaded.step(*backend, {{1, 39, 1}});
    EXPECT_TRUE(same_bits(threaded.outputs()[0], alone.outputs()[0])) << n_threads;
    EXPECT_TRUE(same_bits(threaded.outputs()[1], alone.outputs()[1])) << n_threads;
  }
}

// Batches of 1 to 64 sequences: random mixtures of chunks and single rows of all that have work
// left.
TEST_P(SameAnswerThreads, AttentionInAnyBatch) {
  std::mt19937_64 random(12);
  std::vector<int32_t> lens;
  for (int32_t i = 0; i < 64; ++i) {
    lens.push_back(1 + static_cast<int32_t>(random() % (i % 16 == 0 ? 700 : 60)));
  }
  const auto solo = make_backend({GetParam(), 1});
  const PageLayout layout = solo->capabilities().page_layout;
  Conversations alone(layout, DType::kF16, 0, lens);
  for (int32_t seq = 0; seq < alone.size(); ++seq) alone.prefill(*solo, seq, alone.len(seq));

  for (int32_t n_threads : {1, 2, 5}) {
    const auto backend = make_backend({GetParam(), n_threads});
    Conversations mixed(layout, DType::kF16, 0, lens);
    std::vector<int32_t> done(lens.size(), 0);
    bool work_left = true;
    while (work_left) {
      work_left = false;
      std::vector<Conversations::Piece> pieces;
      const uint64_t busy = 1 + random() % 4;
      for (int32_t seq = 0; seq < mixed.size(); ++seq) {
        int32_t& start = done[static_cast<size_t>(seq)];
        const int32_t left = mixed.len(seq) - start;
        work_left = work_left || left > 0;
        if (left == 0 || random() % busy != 0) continue;
        const int32_t wanted = random() % 2 == 0 ? 1 : 1 + static_cast<int32_t>(random() % 80);
        pieces.push_back({seq, start, std::min(left, wanted)});
        start += pieces.back().count;
      }
      if (!pieces.empty()) mixed.step(*backend, pieces);
    }
    for (size_t seq = 0; seq < lens.size(); ++seq) {
      EXPECT_TRUE(same_bits(mixed.outputs()[seq], alone.outputs()[seq]))
          << "sequence " << seq << " of " << lens[seq] << ", " << n_threads << " threads";
    }
    EXPECT_EQ(mixed.pages(), alone.pages());
  }
}

// rms_norm and silu_mul of 64 rows against each row alone.
TEST_P(SameAnswerThreads, RowOps) {
  constexpr int32_t kRows = 64;
  constexpr int32_t kDim = 580;
  std::mt19937_64 random(13);
  const std::vector<float> x = random_floats(random, kRows * 2 * kDim);
  const auto solo = make_backend({GetParam(), 1});
  std::vector<float> norms(kRows * kDim);
  std::vector<float> gated(kRows * kDim);
  const auto run = [&](Backend& backend, int32_t row, int32_t n_rows, float* norm, float* gate) {
    ops::rms_norm(backend, {.x = x.data() + row * kDim,
                            .weight = x.data(),
                            .out = norm,
                            .n_rows = n_rows,
                            .dim = kDim,
                            .eps = 1e-5F});
    ops::silu_mul(
        backend,
        {.gate_up = x.data() + row * 2 * kDim, .out = gate, .n_rows = n_rows, .dim = kDim});
  };
  for (int32_t row = 0; row < kRows; ++row) {
    run(*solo, row, 1, norms.data() + row * kDim, gated.data() + row * kDim);
  }
  for (int32_t n_threads = 1; n_threads <= 8; n_threads += kSanitized ? 3 : 1) {
    const auto backend = make_backend({GetParam(), n_threads});
    std::vector<float> norms_together(norms.size());
    std::vector<float> gated_together(gated.size());
    run(*backend, 0, kRows, norms_together.data(), gated_together.data());
    EXPECT_TRUE(same_bits(norms_together, norms)) << n_threads;
    EXPECT_TRUE(same_bits(gated_together, gated)) << n_threads;
  }
}

TEST_P(SameAnswerThreads, Sampling) {
  constexpr int32_t kVocab = 5003;
  constexpr int32_t kRows = 64;
  std::mt19937_64 random(14);
  const std::vector<float> logits = random_floats(random, int64_t{kRows} * kVocab, 2);
  std::vector<ops::SampleRow> rows;
  std::vector<int32_t> allowed;
  std::vector<ops::LogitBias> bias;
  std::vector<ops::TokenCount> counts;
  for (int32_t id = 0; id < kVocab; ++id) {
    if (random() % 2 == 0) allowed.push_back(id);
    if (random() % 50 == 0) bias.push_back({id, id % 2 == 0 ? -INFINITY : 2.0F});
    if (random() % 3 == 0) counts.push_back({id, static_cast<int32_t>(random() % 3)});
  }
  // Every second row is adjusted by some of the lists.
  for (int32_t i = 0; i < kRows; ++i) {
    const auto some = [&](const auto& list, int32_t period) {
      return i % period == 1 ? static_cast<int32_t>(list.size()) : 0;
    };
    rows.push_back({.logits_row = i % 8 == 1 ? 0 : i,
                    .temperature = i % 5 == 0 ? 0.0F : 0.5F + static_cast<float>(i % 4),
                    .top_k = i % 3 == 0 ? 20 : 0,
                    .top_p = i % 4 == 0 ? 0.9F : 1.0F,
                    .min_p = i % 7 == 0 ? 0.1F : 0.0F,
                    .seed = random(),
                    .position = i,
                    .allowed = allowed.data(),
                    .n_allowed = some(allowed, 6),
                    .bias = bias.data(),
                    .n_bias = some(bias, 4),
                    .counts = counts.data(),
                    .n_counts = some(counts, 2),
                    .repetition_penalty = 1.3F,
                    .frequency_penalty = 0.2F,
                    .presence_penalty = 0.1F,
                    .n_top = i % 6 - 1});
  }
  const auto run = [&](Backend& backend, std::span<const ops::SampleRow> some,
                       ops::SampleResult* results) {
    ops::sample(backend,
                {.logits = logits.data(), .vocab = kVocab, .rows = some, .results = results});
  };
  const auto solo = make_backend({GetParam(), 1});
  std::vector<ops::SampleResult> alone(rows.size());
  for (size_t i = rows.size(); i-- > 0;) run(*solo, std::span(rows).subspan(i, 1), &alone[i]);
  for (int32_t n_threads = 1; n_threads <= 8; n_threads += kSanitized ? 3 : 1) {
    const auto backend = make_backend({GetParam(), n_threads});
    std::vector<ops::SampleResult> together(rows.size());
    run(*backend, rows, together.data());
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(alone[0])), 0);
  }
}

std::string isa_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, SameAnswerThreads, testing::ValuesIn(isa_names()), isa_name);

}  // namespace
}  // namespace pagoda::test
