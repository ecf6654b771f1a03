#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/ref/dequant.h"
#include "kernels/ref/ref_backend.h"
#include "tests/unit/model/half_backend.h"
#include "tests/unit/model/tiny_model.h"

namespace pagoda::model {
namespace {

std::vector<int32_t> random_ids(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % TinyLlama::kVocab);
  return ids;
}

// A decoder with a pool of blocks whose tables run through it in random order.
class DecoderHarness {
 public:
  DecoderHarness(const TinyLlama& tiny, Backend& backend, int32_t block_size = kPageTokens)
      : backend_(backend), model_(load_tiny(tiny, backend)) {
    auto decoder = Decoder::create(backend, model_.config, model_.weights, kMaxRows);
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
    kv_.dtype = backend.capabilities().kv_dtype;
    kv_.page_layout = backend.capabilities().page_layout;
    kv_.block_size = block_size;
    kv_.n_blocks = 2 * kMaxSeqs * blocks_of_seq();
    kv_.n_layers = TinyLlama::kLayers;
    kv_.n_kv_heads = TinyLlama::kKvHeads;
    kv_.head_dim = TinyLlama::kHeadDim;
    auto pool = backend.allocate(static_cast<size_t>(kv_.pool_bytes()));
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
    kv_.base = pool_.as<uint8_t>();
    decoder_->set_kv(kv_);
    std::vector<int32_t> order(static_cast<size_t>(kv_.n_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(11));
    for (const int32_t block : order) shuffled_.emplace_back(block);
  }

  static constexpr int32_t kMaxRows = 160;
  static constexpr int32_t kMaxSeqs = 4;
  static constexpr int32_t kMaxLen = 640;

  struct Part {
    int32_t seq = 0;
    int32_t position = 0;
    std::span<const int32_t> ids;
  };
  // Runs parts of sequences as one batch; the logits of all rows, in their order.
  std::vector<float> step(const std::vector<Part>& parts) {
    std::vector<int32_t> ids;
    std::vector<int32_t> positions;
    std::vector<ops::KvSlot> slots;
    std::vector<std::vector<ops::AttentionSeq>> seqs(1);
    for (const Part& part : parts) {
      const BlockId* table = shuffled_.data() + part.seq * blocks_of_seq();
      seqs[0].push_back({.row_begin = static_cast<int32_t>(ids.size()),
                         .n_rows = static_cast<int32_t>(part.ids.size()),
                         .position = part.position,
                         .blocks = table});
      for (size_t i = 0; i < part.ids.size(); ++i) {
        const int32_t position = part.position + static_cast<int32_t>(i);
        ids.push_back(part.ids[i]);
        positions.push_back(position);
        slots.push_back({table[position / kv_.block_size], position % kv_.block_size});
      }
    }
    std::vector<int32_t> rows(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    const ops::KvSlot* slot_list = slots.data();
    decoder_->forward({.n_rows = static_cast<int32_t>(ids.size()),
                       .ids = ids.data(),
                       .positions = positions.data(),
                       .slots = {&slot_list, 1},
                       .seqs = seqs,
                       .wanted_rows = rows.data(),
                       .n_wanted = static_cast<int32_t>(rows.size())});
    std::vector<float> all;
    for (size_t begin = 0; begin < rows.size(); begin += Decoder::kMaxLogitRows) {
      const size_t n = std::min<size_t>(Decoder::kMaxLogitRows, rows.size() - begin);
      const float* logits = decoder_->logits(rows.data() + begin, static_cast<int32_t>(n));
      all.insert(all.end(), logits, logits + n * TinyLlama::kVocab);
    }
    return all;
  }

  // One sequence in chunks of the given sizes, the last repeated.
  std::vector<float> run(std::span<const int32_t> ids, const std::vector<size_t>& chunks,
                         int32_t seq = 0) {
    std::vector<float> all;
    size_t begin = 0;
    for (size_t i = 0; begin < ids.size(); ++i) {
      const size_t n = std::min(chunks[std::min(i, chunks.size() - 1)], ids.size() - begin);
      const std::vector<float> part =
          step({{seq, static_cast<int32_t>(begin), ids.subspan(begin, n)}});
      all.insert(all.end(), part.begin(), part.end());
      begin += n;
    }
    return all;
  }

  const TinyModel& model() const { return model_; }

 private:
  int32_t blocks_of_seq() const { return kMaxLen / kv_.block_size; }

  Backend& backend_;
  TinyModel model_;
  std::unique_ptr<Decoder> decoder_;
  Buffer pool_;
  KvView kv_;
  std::vector<BlockId> shuffled_;
};

// The same model in double precision, without batches, blocks, ops or stacked matrices: the text of
// the paper, position by position.
class NaiveLlama {
 public:
  explicit NaiveLlama(const TinyModel& model) : file_(*model.file), config_(model.config) {
    inv_freq_ = rope_inv_freq(config_.rope);
    magnitude_ = rope_magnitude(config_.rope);
  }

  std::vector<double> logits(std::span<const int32_t> ids) {
    std::vector<double> all;
    keys_.assign(static_cast<size_t>(config_.n_layers), {});
    values_.assign(static_cast<size_t>(config_.n_layers), {});
    const Matrix embedding = matrix("token_embd.weight");
    for (size_t position = 0; position < ids.size(); ++position) {
      const float* row = embedding.data() + ids[position] * config_.hidden_dim;
      Vector x(row, row + config_.hidden_dim);
      for (int32_t layer = 0; layer < config_.n_layers; ++layer) {
        const std::string prefix = "blk." + std::to_string(layer) + ".";
        add(x, attend(norm(x, prefix + "attn_norm.weight"), prefix, layer,
                      static_cast<double>(position)));
        add(x, feed_forward(norm(x, prefix + "ffn_norm.weight"), prefix));
      }
      const char* output = config_.tied_output ? "token_embd" : "output";
      const Vector row_logits = multiply(norm(x, "output_norm.weight"), output);
      all.insert(all.end(), row_logits.begin(), row_logits.end());
    }
    return all;
  }

 private:
  using Vector = std::vector<double>;
  using Matrix = std::vector<float>;

  const Matrix& matrix(const std::string& name) {
    Matrix& values = matrices_[name];
    const GgufTensor* tensor = file_.find_tensor(name);
    if (!values.empty() || tensor == nullptr) return values;
    int64_t n = 1;
    for (const int64_t dim : tensor->dims) n *= dim;
    values.resize(static_cast<size_t>(n));
    ref::dequantize_row(tensor->type, tensor->data.data(), values.data(), n);
    return values;
  }

  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  Vector norm(const Vector& x, const std::string& name) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + config_.norm_eps);
    const Matrix& weight = matrix(name);
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * double{weight[i]};
    return out;
  }

  Vector multiply(const Vector& x, const std::string& name) {
    const Matrix& weight = matrix(name + ".weight");
    const Matrix& bias = matrix(name + ".bias");
    Vector out(weight.size() / x.size());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = bias.empty() ? 0 : double{bias[i]};
      for (size_t j = 0; j < x.size(); ++j) out[i] += double{weight[i * x.size() + j]} * x[j];
    }
    return out;
  }

  void rotate(Vector& heads, double position) {
    const auto head_dim = static_cast<size_t>(config_.head_dim);
    for (size_t head = 0; head < heads.size(); head += head_dim) {
      for (size_t pair = 0; pair < inv_freq_.size(); ++pair) {
        const double angle = position * double{inv_freq_[pair]};
        const double a = heads[head + 2 * pair];
        const double b = heads[head + 2 * pair + 1];
        heads[head + 2 * pair] = magnitude_ * (a * std::cos(angle) - b * std::sin(angle));
        heads[head + 2 * pair + 1] = magnitude_ * (a * std::sin(angle) + b * std::cos(angle));
      }
    }
  }

  Vector attend(const Vector& x, const std::string& prefix, int32_t layer, double position) {
    Vector q = multiply(x, prefix + "attn_q");
    Vector k = multiply(x, prefix + "attn_k");
    rotate(q, position);
    rotate(k, position);
    auto& keys = keys_[static_cast<size_t>(layer)];
    auto& values = values_[static_cast<size_t>(layer)];
    keys.push_back(k);
    values.push_back(multiply(x, prefix + "attn_v"));
    const auto dim = static_cast<size_t>(config_.head_dim);
    const auto per_kv_head = static_cast<size_t>(config_.n_heads / config_.n_kv_heads);
    Vector out(q.size());
    for (size_t head = 0; head < static_cast<size_t>(config_.n_heads); ++head) {
      const size_t kv = head / per_kv_head * dim;
      Vector weights;
      double total = 0;
      for (const Vector& key : keys) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += q[head * dim + d] * key[kv + d];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
        total += weights.back();
      }
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t d = 0; d < dim; ++d) {
          out[head * dim + d] += weights[t] / total * values[t][kv + d];
        }
      }
    }
    return multiply(out, prefix + "attn_output");
  }

  Vector feed_forward(const Vector& x, const std::string& prefix) {
    Vector gate = multiply(x, prefix + "ffn_gate");
    const Vector up = multiply(x, prefix + "ffn_up");
    for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return multiply(gate, prefix + "ffn_down");
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  std::vector<float> inv_freq_;
  double magnitude_ = 1;
  std::map<std::string, Matrix> matrices_;
  std::vector<std::vector<Vector>> keys_;    // [n_layers][positions]
  std::vector<std::vector<Vector>> values_;  // [n_layers][positions]
};

// The root mean square of a - b over that of b.
template <typename A, typename B>
double relative_error(const A& a, const B& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    total += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / total);
}

std::vector<TinyLlama> kinds_of_llama() {
  std::vector<TinyLlama> kinds;
  for (const char* scaling : {"", "linear", "yarn", "llama3"}) {
    kinds.push_back({.rope_scaling = scaling});
  }
  kinds.push_back({.tied = true, .rope_scaling = ""});
  kinds.push_back({.biases = true, .rope_scaling = ""});
  kinds.push_back({.type = DType::kQ4_K, .tied = true, .biases = true, .rope_scaling = "yarn"});
  return kinds;
}

TEST(Decoder, ComputesALlama) {
  ref::RefBackend backend;
  const std::vector<int32_t> ids = random_ids(40, 3);
  for (const TinyLlama& tiny : kinds_of_llama()) {
    DecoderHarness harness(tiny, backend);
    const std::vector<float> logits = harness.run(ids, {23, 1, 16});
    const std::vector<double> expected = NaiveLlama(harness.model()).logits(ids);
    EXPECT_LT(relative_error(logits, expected), 1e-5) << tiny.rope_scaling << tiny.biases;
  }
}

TEST(Decoder, ActivationsOfTheBackendsType) {
  HalfBackend backend;
  const std::vector<int32_t> ids = random_ids(40, 3);
  for (const TinyLlama& tiny : kinds_of_llama()) {
    DecoderHarness harness(tiny, backend);
    const std::vector<float> logits = harness.run(ids, {23, 1, 16});
    const std::vector<double> expected = NaiveLlama(harness.model()).logits(ids);
    EXPECT_LT(relative_error(logits, expected), 5e-3) << tiny.rope_scaling << tiny.biases;
  }
}

// Float weights differ by rounding alone, quantised ones also by activations in eight bits.
TEST(Decoder, CpuAgreesWithReference) {
  const std::vector<int32_t> ids = random_ids(70, 4);
  std::vector<TinyLlama> kinds = kinds_of_llama();
  for (const DType type : kAllTypes) kinds.push_back({.type = type, .rope_scaling = ""});
  for (const TinyLlama& tiny : kinds) {
    const auto cpu = cpu_backend(2);
    ref::RefBackend reference(PageLayout::kTokenMajor, DType::kF16);
    const std::vector<float> actual = DecoderHarness(tiny, *cpu).run(ids, {64, 6});
    const std::vector<float> expected = DecoderHarness(tiny, reference).run(ids, {64, 6});
    const double error = relative_error(actual, expected);
    EXPECT_LT(error, is_quantized(tiny.type) ? 0.02 : 2e-4)
        << dtype_info(tiny.type).name << " " << tiny.rope_scaling;
  }
}

class SameAnswer : public ::testing::TestWithParam<DType> {};

void expect_same_bits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_P(SameAnswer, HoweverThePromptIsCut) {
  const auto backend = cpu_backend(2);
  const TinyLlama tiny{.type = GetParam(), .rope_scaling = "yarn"};
  DecoderHarness harness(tiny, *backend);
  const std::vector<int32_t> ids = random_ids(150, 5);
  const std::vector<float> whole = harness.run(ids, {150});
  expect_same_bits(harness.run(ids, {1}), whole);
  expect_same_bits(harness.run(ids, {64}, 1), whole);
  expect_same_bits(harness.run(ids, {17, 5, 96, 1, 3}, 2), whole);
}

TEST_P(SameAnswer, HoweverManyThreadsAndBlockSizes) {
  const TinyLlama tiny{.type = GetParam(), .rope_scaling = ""};
  const std::vector<int32_t> ids = random_ids(90, 6);
  const auto one = cpu_backend(1);
  const std::vector<float> expected = DecoderHarness(tiny, *one).run(ids, {90});
  for (const int32_t n_threads : {2, 3}) {
    const auto backend = cpu_backend(n_threads);
    expect_same_bits(DecoderHarness(tiny, *backend).run(ids, {90}), expected);
    expect_same_bits(DecoderHarness(tiny, *backend, 64).run(ids, {31}), expected);
  }
}

TEST_P(SameAnswer, WhoeverElseIsInTheBatch) {
  const auto backend = cpu_backend(2);
  DecoderHarness harness({.type = GetParam(), .rope_scaling = ""}, *backend);
  const std::vector<int32_t> a = random_ids(100, 7);
  const std::vector<int32_t> b = random_ids(60, 8);
  const std::span<const int32_t> a_ids(a);
  const std::span<const int32_t> b_ids(b);
  const std::vector<float> a_alone = harness.run(a, {100}, 0);
  const std::vector<float> b_alone = harness.run(b, {60}, 1);
  constexpr size_t kWidth = TinyLlama::kVocab;

  const std::vector<float> first = harness.step({{2, 0, a_ids.first(70)}, {3, 0, b_ids.first(59)}});
  const std::vector<float> second =
      harness.step({{3, 59, b_ids.subspan(59)}, {2, 70, a_ids.subspan(70)}});
  expect_same_bits(std::span(first).first(70 * kWidth), std::span(a_alone).first(70 * kWidth));
  expect_same_bits(std::span(first).subspan(70 * kWidth), std::span(b_alone).first(59 * kWidth));
  expect_same_bits(std::span(second).first(kWidth), std::span(b_alone).subspan(59 * kWidth));
  expect_same_bits(std::span(second).subspan(kWidth), std::span(a_alone).subspan(70 * kWidth));
}

// Past the border of a piece of attention.
TEST(SameAnswerLong, AcrossAttentionPieces) {
  const auto backend = cpu_backend(2);
  DecoderHarness harness({.type = DType::kQ4_1, .rope_scaling = ""}, *backend);
  const std::vector<int32_t> ids = random_ids(600, 9);
  const std::vector<float> chunked = harness.run(ids, {150});
  expect_same_bits(harness.run(ids, {33}, 1), chunked);
}

INSTANTIATE_TEST_SUITE_P(Types, SameAnswer,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0,
                                           DType::kQ6_K),
                         [](const auto& info) { return std::string(dtype_info(info.param).name); });

}  // namespace
}  // namespace pagoda::model
