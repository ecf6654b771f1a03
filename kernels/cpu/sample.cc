#include "kernels/cpu/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/philox.h"

namespace pagoda::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  int32_t id;
  double mass;  // relative to the most likely token, whose mass is 1
};

// The order that top_k and top_p cut: most likely first, lowest id among equals.
bool before(const Candidate& a, const Candidate& b) {
  return (a.logit > b.logit) | ((a.logit == b.logit) & (a.id < b.id));
}

int32_t n_blocks_of(int32_t vocab) { return (vocab + kLogitBlock - 1) / kLogitBlock; }

// A row of logits with the largest of each block, so that most blocks need no second look.
struct Logits {
  const float* x;
  int32_t vocab;
  const float* maxima;  // [n_blocks_of(vocab)]
  float max;
};

// There is a logit above minus infinity.
int32_t first_largest(const Logits& logits) {
  int32_t block = 0;
  while (logits.maxima[block] != logits.max) ++block;
  int32_t id = block * kLogitBlock;
  while (logits.x[id] != logits.max) ++id;
  return id;
}

double total_of(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.mass;
  return total;
}

// Works on one row at a time; its buffers keep their memory from row to row.
class RowSampler {
 public:
  void run(const Isa& isa, const ops::Sample& args, const ops::SampleRow& row,
           ops::SampleResult* result);

 private:
  Logits scan(const Isa& isa, const float* x, int32_t vocab, std::vector<float>* maxima);
  const float* adjust(const float* x, int32_t vocab, const ops::SampleRow& row);
  int32_t draw(const Isa& isa, const Logits& logits, const ops::SampleRow& row);
  int32_t draw_from_all(const Isa& isa, const Logits& logits, const ops::SampleRow& row);
  double mass_of_all(const Isa& isa, const Logits& logits, float temperature, float* masses);
  void collect(const Logits& logits, float temperature, double distance, bool masses_known);
  void collect_enough(const Isa& isa, const Logits& logits, const ops::SampleRow& row);
  void keep_top_k(size_t k);
  double find_border(double mass);
  void keep_top_p(double mass);
  void keep_until(const Candidate& border);
  void report(const Isa& isa, const Logits& logits, const ops::SampleRow& row,
              ops::SampleResult* result);

  std::vector<float> adjusted_;
  std::vector<float> maxima_;
  std::vector<float> raw_maxima_;
  std::vector<float> masses_;
  std::vector<double> sums_;
  std::vector<double> bucket_masses_;
  std::vector<Candidate> kept_;  // in the order of ids
  std::vector<Candidate> work_;
};

Logits RowSampler::scan(const Isa& isa, const float* x, int32_t vocab, std::vector<float>* maxima) {
  maxima->resize(static_cast<size_t>(n_blocks_of(vocab)));
  const float max = isa.block_maxima(x, vocab, maxima->data());
  return {x, vocab, maxima->data(), max};
}

// No branch depends on a logit or a count: they follow no pattern.
void penalise(std::span<float> logits, const ops::SampleRow& row) {
  const double repeated[2] = {row.repetition_penalty, 1 / double{row.repetition_penalty}};
  const double present[2] = {0, row.presence_penalty};
  const double each = row.frequency_penalty;
  for (const ops::TokenCount& count : std::span(row.counts, static_cast<size_t>(row.n_counts))) {
    CHECK(count.token >= 0 && static_cast<size_t>(count.token) < logits.size());
    float& logit = logits[static_cast<size_t>(count.token)];
    logit = static_cast<float>(logit * repeated[logit > 0 ? 1 : 0] - each * count.n_output -
                               present[count.n_output > 0 ? 1 : 0]);
  }
}

// The logits that a token is drawn from.
const float* RowSampler::adjust(const float* x, int32_t vocab, const ops::SampleRow& row) {
  if (row.n_allowed > 0) {
    adjusted_.assign(static_cast<size_t>(vocab), kNever);
    for (const int32_t id : std::span(row.allowed, static_cast<size_t>(row.n_allowed))) {
      CHECK(id >= 0 && id < vocab);
      adjusted_[static_cast<size_t>(id)] = x[id];
    }
  } else {
    adjusted_.assign(x, x + vocab);
  }
  for (const ops::LogitBias& bias : std::span(row.bias, static_cast<size_t>(row.n_bias))) {
    CHECK(bias.token >= 0 && bias.token < vocab);
    adjusted_[static_cast<size_t>(bias.token)] += bias.value;
  }
  penalise(adjusted_, row);
  return adjusted_.data();
}

// The sum of e^((x - max) / temperature) over the row; sums_ is left with that of each block.
double RowSampler::mass_of_all(const Isa& isa, const Logits& logits, float temperature,
                               float* masses) {
  sums_.resize(static_cast<size_t>(n_blocks_of(logits.vocab)));
  isa.exp_sums(logits.x, logits.vocab, logits.max, 1.0F / temperature, masses, sums_.data());
  return std::accumulate(sums_.begin(), sums_.end(), 0.0);
}

int32_t RowSampler::draw_from_all(const Isa& isa, const Logits& logits, const ops::SampleRow& row) {
  masses_.resize(static_cast<size_t>(logits.vocab));
  const double total = mass_of_all(isa, logits, row.temperature, masses_.data());
  const double target = draw_uniform(row.seed, row.choice, row.position) * total;
  double passed = 0;
  size_t block = 0;
  while (block + 1 < sums_.size() && passed + sums_[block] <= target) passed += sums_[block++];
  const int32_t begin = static_cast<int32_t>(block) * kLogitBlock;
  const int32_t end = std::min(begin + kLogitBlock, logits.vocab);
  // Rounding may leave the sum of a block a little short of the target: then its last token.
  int32_t last = -1;
  for (int32_t id = begin; id < end; ++id) {
    const float mass = masses_[static_cast<size_t>(id)];
    if (mass == 0) continue;
    last = id;
    passed += mass;
    if (passed > target) break;
  }
  return last >= 0 ? last : first_largest(logits);
}

// Fills kept_ with the tokens whose mass is at least e^-distance, a few more at the border, but
// none whose logit is minus infinity. Known masses are those of masses_.
void RowSampler::collect(const Logits& logits, float temperature, double distance,
                         bool masses_known) {
  kept_.clear();
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  const double floor = double{logits.max} - distance * temperature;
  // An infinite maximum leaves only its equals.
  const float lowest = std::isinf(logits.max)
                           ? logits.max
                           : std::nextafter(static_cast<float>(std::max(floor, kLowest)), kNever);
  for (int32_t block = 0; block < n_blocks_of(logits.vocab); ++block) {
    if (logits.maxima[block] < lowest) continue;
    const int32_t begin = block * kLogitBlock;
    const int32_t end = std::min(begin + kLogitBlock, logits.vocab);
    for (int32_t id = begin; id < end; ++id) {
      const float logit = logits.x[id];
      if (!(logit >= lowest) || logit == kNever) continue;
      double mass = 1;
      if (masses_known) {
        mass = masses_[static_cast<size_t>(id)];
      } else if (logit != logits.max) {
        mass = std::exp((double{logit} - logits.max) / temperature);
      }
      kept_.push_back({logit, id, mass});
    }
  }
}

// Fills kept_ with at least all tokens that the filters can leave, and applies min_p.
void RowSampler::collect_enough(const Isa& isa, const Logits& logits, const ops::SampleRow& row) {
  constexpr double kEverything = std::numeric_limits<double>::infinity();
  if (row.min_p > 0) {
    collect(logits, row.temperature, -std::log(double{row.min_p}), false);
    std::erase_if(kept_, [&](const Candidate& c) { return c.mass < row.min_p; });
    return;
  }
  const bool by_count = row.top_k > 0 && row.top_k < logits.vocab;
  double wanted = 0;
  if (!by_count) {
    masses_.resize(static_cast<size_t>(logits.vocab));
    wanted = row.top_p * mass_of_all(isa, logits, row.temperature, masses_.data());
  }
  for (const double distance : {6.0, 9.0, 12.0, 16.0, 24.0, kEverything}) {
    collect(logits, row.temperature, distance, !by_count);
    const bool enough =
        by_count ? kept_.size() >= static_cast<size_t>(row.top_k) : total_of(kept_) >= wanted;
    if (enough) break;
  }
  if (!by_count) keep_top_p(wanted);
}

void RowSampler::keep_until(const Candidate& border) {
  size_t n = 0;
  for (const Candidate& c : kept_) {
    kept_[n] = c;
    n += !before(border, c);
  }
  kept_.resize(n);
}

void RowSampler::keep_top_k(size_t k) {
  if (k >= kept_.size()) return;
  work_ = kept_;
  const auto nth = work_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(work_.begin(), nth, work_.end(), before);
  keep_until(*nth);
}

// The exponent and the first bits of a mass in [0, 1], so that heavier ones come later.
constexpr int kBucketShift = 19;
constexpr uint32_t kLastBucket = std::bit_cast<uint32_t>(1.0F) >> kBucketShift;
uint32_t bucket_of(double mass) {
  return std::min(std::bit_cast<uint32_t>(static_cast<float>(mass)) >> kBucketShift, kLastBucket);
}

// Fills work_ with those of kept_ among which the sum, heaviest first, reaches `mass`. Returns the
// sum of all that are heavier.
double RowSampler::find_border(double mass) {
  constexpr size_t kFew = 256;
  if (kept_.size() <= kFew) {
    work_ = kept_;
    return 0;
  }
  // Two of each bucket, so that neighbours of like mass don't wait for each other's sum.
  bucket_masses_.assign(2 * (kLastBucket + 1), 0.0);
  for (size_t i = 0; i < kept_.size(); ++i) {
    bucket_masses_[2 * bucket_of(kept_[i].mass) + i % 2] += kept_[i].mass;
  }
  const auto mass_at = [&](uint32_t b) {
    return bucket_masses_[2 * size_t{b}] + bucket_masses_[2 * size_t{b} + 1];
  };
  double passed = 0;
  uint32_t border = kLastBucket;
  while (border > 0 && passed + mass_at(border) < mass) passed += mass_at(border--);
  work_.resize(kept_.size());
  size_t n = 0;
  for (const Candidate& c : kept_) {
    work_[n] = c;
    n += bucket_of(c.mass) == border;
  }
  work_.resize(n);
  return passed;
}

// Halves the range that holds the border until it is short, summing only what is above it.
void RowSampler::keep_top_p(double mass) {
  constexpr std::ptrdiff_t kShort = 32;
  double passed = find_border(mass);
  auto begin = work_.begin();
  auto end = work_.end();
  while (end - begin > kShort) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    double upper = 0;
    for (auto it = begin; it != middle; ++it) upper += it->mass;
    if (passed + upper >= mass) {
      end = middle;
    } else {
      passed += upper;
      begin = middle;
    }
  }
  std::sort(begin, end, before);
  for (auto it = begin; it != end; ++it) {
    passed += it->mass;
    if (passed >= mass || it + 1 == end) return keep_until(*it);
  }
}

int32_t RowSampler::draw(const Isa& isa, const Logits& logits, const ops::SampleRow& row) {
  const bool sharp = row.top_k == 1 || row.top_p <= 0 || row.min_p >= 1;
  const bool greedy = !(row.temperature >= ops::kGreedyTemperature);
  if (logits.max == kNever) return -1;
  if (greedy || sharp) return first_largest(logits);

  const bool cut_by_count = row.top_k > 0 && row.top_k < logits.vocab;
  const bool cut_by_mass = row.top_p < 1;
  const bool filtered = cut_by_count || cut_by_mass || row.min_p > 0;
  if (!filtered && std::isfinite(logits.max)) return draw_from_all(isa, logits, row);

  if (std::isinf(logits.max)) {
    collect(logits, row.temperature, 0, false);
  } else {
    collect_enough(isa, logits, row);
  }
  if (cut_by_count) keep_top_k(static_cast<size_t>(row.top_k));
  const bool cut_already = std::isfinite(logits.max) && row.min_p <= 0 && !cut_by_count;
  if (cut_by_mass && !cut_already) keep_top_p(row.top_p * total_of(kept_));

  const double target = draw_uniform(row.seed, row.choice, row.position) * total_of(kept_);
  double passed = 0;
  int32_t last = first_largest(logits);
  for (const Candidate& c : kept_) {
    if (c.mass == 0) continue;
    last = c.id;
    passed += c.mass;
    if (passed > target) break;
  }
  return last;
}

// How many tokens come before `token` in the order of falling logits, and one more.
int32_t rank_of(const Logits& logits, int32_t token) {
  const float logit = logits.x[token];
  int32_t n_before = 0;
  for (int32_t block = 0; block < n_blocks_of(logits.vocab); ++block) {
    if (logits.maxima[block] < logit) continue;
    const int32_t begin = block * kLogitBlock;
    const int32_t end = std::min(begin + kLogitBlock, logits.vocab);
    for (int32_t id = begin; id < end; ++id) {
      // All NaNs and minus infinities are equal, and last.
      const float other = logits.x[id];
      const bool equal = other == logit || (!(other > kNever) && !(logit > kNever));
      n_before += other > logit || (equal && id < token) || (std::isnan(logit) && other > kNever);
    }
  }
  return n_before + 1;
}

// The n most likely tokens in order; their logits come out in `values`.
void most_likely(const Logits& logits, int32_t n, int32_t* tokens, float* values) {
  int32_t count = 0;
  for (int32_t block = 0; block < n_blocks_of(logits.vocab); ++block) {
    if (count == n && (n == 0 || logits.maxima[block] <= values[n - 1])) continue;
    const int32_t begin = block * kLogitBlock;
    const int32_t end = std::min(begin + kLogitBlock, logits.vocab);
    for (int32_t id = begin; id < end; ++id) {
      const float logit = std::isnan(logits.x[id]) ? kNever : logits.x[id];
      if (count == n && logit <= values[n - 1]) continue;
      int32_t at = count < n ? count++ : n - 1;
      for (; at > 0 && values[at - 1] < logit; --at) {
        values[at] = values[at - 1];
        tokens[at] = tokens[at - 1];
      }
      values[at] = logit;
      tokens[at] = id;
    }
  }
}

void RowSampler::report(const Isa& isa, const Logits& logits, const ops::SampleRow& row,
                        ops::SampleResult* result) {
  double log_total = 0;
  if (std::isfinite(logits.max)) {
    log_total = std::log(mass_of_all(isa, logits, 1.0F, nullptr));
  } else if (logits.max > 0) {
    log_total =
        std::log(static_cast<double>(std::count(logits.x, logits.x + logits.vocab, logits.max)));
  }
  const auto logprob = [&](float logit) {
    if (!(logit > kNever)) return kNever;
    const double below = logit == logits.max ? 0.0 : double{logit} - logits.max;
    return static_cast<float>(below - log_total);
  };
  result->logprob = logprob(logits.x[result->token]);
  result->rank = rank_of(logits, result->token);
  result->n_top = std::clamp(row.n_top, 0, std::min(ops::kMaxTopLogprobs, logits.vocab));
  most_likely(logits, result->n_top, result->top_tokens, result->top_logprobs);
  for (float& value : std::span(result->top_logprobs, static_cast<size_t>(result->n_top))) {
    value = logprob(value);
  }
}

void RowSampler::run(const Isa& isa, const ops::Sample& args, const ops::SampleRow& row,
                     ops::SampleResult* result) {
  const float* x = args.logits + int64_t{row.logits_row} * args.vocab;
  *result = {};
  const bool forced = row.forced_token >= 0;
  const bool reported = row.n_top >= 0 || forced;
  CHECK_LT(row.forced_token, args.vocab);
  const bool adjusted = row.n_allowed > 0 || row.n_bias > 0 || row.n_counts > 0;
  Logits raw = {};
  if (reported || !adjusted) raw = scan(isa, x, args.vocab, &raw_maxima_);
  if (forced) {
    result->token = row.forced_token;
  } else if (!adjusted) {
    result->token = draw(isa, raw, row);
  } else {
    result->token = draw(isa, scan(isa, adjust(x, args.vocab, row), args.vocab, &maxima_), row);
  }
  if (reported && result->token >= 0) report(isa, raw, row, result);
}

}  // namespace

void run_sample(ThreadPool& pool, const Isa& isa, const ops::Sample& args) {
  CHECK_GT(args.vocab, 0);
  const auto n_rows = static_cast<int64_t>(args.rows.size());
  pool.parallel_for(n_rows, 1, [&](int64_t begin, int64_t end, int32_t) {
    // One for each thread, so that a step allocates nothing once the buffers have grown.
    static thread_local RowSampler sampler;
    for (int64_t i = begin; i < end; ++i) {
      sampler.run(isa, args, args.rows[static_cast<size_t>(i)], args.results + i);
    }
  });
}

}  // namespace pagoda::cpu
