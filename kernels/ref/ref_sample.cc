// Sampling by its definition: sort all tokens, cut, renormalise, walk.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/philox.h"
#include "kernels/ref/ref_backend.h"

namespace pagoda::ref {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A row of logits as the model gave them, without NaN.
std::vector<float> model_logits(const ops::Sample& args, const ops::SampleRow& row) {
  const float* first = args.logits + int64_t{row.logits_row} * args.vocab;
  std::vector<float> logits(first, first + args.vocab);
  for (float& logit : logits) {
    if (std::isnan(logit)) logit = kNever;
  }
  return logits;
}

double penalised(double logit, const ops::TokenCount& count, const ops::SampleRow& row) {
  if (logit > 0) {
    logit /= row.repetition_penalty;
  } else {
    logit *= row.repetition_penalty;
  }
  logit -= double{row.frequency_penalty} * count.n_output;
  if (count.n_output > 0) logit -= row.presence_penalty;
  return logit;
}

// What is drawn from: only what is allowed, biased and penalised.
std::vector<float> drawn_logits(const ops::Sample& args, const ops::SampleRow& row) {
  std::vector<float> logits = model_logits(args, row);
  if (row.n_allowed > 0) {
    const std::set<int32_t> allowed(row.allowed, row.allowed + row.n_allowed);
    for (int32_t id = 0; id < args.vocab; ++id) {
      if (!allowed.contains(id)) logits[static_cast<size_t>(id)] = kNever;
    }
  }
  for (int32_t i = 0; i < row.n_bias; ++i) {
    logits[static_cast<size_t>(row.bias[i].token)] += row.bias[i].value;
  }
  for (int32_t i = 0; i < row.n_counts; ++i) {
    float& logit = logits[static_cast<size_t>(row.counts[i].token)];
    logit = static_cast<float>(penalised(logit, row.counts[i], row));
  }
  for (float& logit : logits) {
    if (std::isnan(logit)) logit = kNever;
  }
  return logits;
}

// Token ids from the most likely down, the lowest id first among equals.
std::vector<int32_t> ranking(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return ids;
}

// exp(x - max), where an infinite maximum leaves only its equals.
double mass_of(float x, float max, double temperature) {
  if (x == max) return 1;
  return std::exp((double{x} - max) / temperature);
}

int32_t draw(const std::vector<float>& logits, const ops::SampleRow& row) {
  std::vector<int32_t> kept = ranking(logits);
  const float max = logits[static_cast<size_t>(kept[0])];
  if (max == kNever) return -1;
  const bool sharp = row.top_k == 1 || row.top_p <= 0 || row.min_p >= 1;
  if (!(row.temperature >= ops::kGreedyTemperature) || sharp) return kept[0];

  const auto mass = [&](int32_t id) {
    return mass_of(logits[static_cast<size_t>(id)], max, row.temperature);
  };
  std::erase_if(kept, [&](int32_t id) { return mass(id) < row.min_p; });
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < kept.size()) {
    kept.resize(static_cast<size_t>(row.top_k));
  }
  double total = 0;
  for (int32_t id : kept) total += mass(id);
  if (row.top_p < 1) {
    double reached = 0;
    size_t n = 0;
    while (n < kept.size() && reached < row.top_p * total) reached += mass(kept[n++]);
    kept.resize(n);
    total = reached;
  }
  std::sort(kept.begin(), kept.end());
  const double target = draw_uniform(row.seed, row.choice, row.position) * total;
  double passed = 0;
  int32_t last = kept[0];
  for (int32_t id : kept) {
    if (mass(id) == 0) continue;
    last = id;
    passed += mass(id);
    if (passed > target) break;
  }
  return last;
}

void report(const std::vector<float>& logits, const ops::SampleRow& row,
            ops::SampleResult* result) {
  const std::vector<int32_t> ids = ranking(logits);
  const float max = logits[static_cast<size_t>(ids[0])];
  double sum = 0;
  for (float logit : logits) sum += mass_of(logit, max, 1);
  const auto logprob = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    if (logit == kNever) return kNever;
    return static_cast<float>((logit == max ? 0.0 : double{logit} - max) - std::log(sum));
  };
  result->logprob = logprob(result->token);
  result->rank =
      static_cast<int32_t>(std::find(ids.begin(), ids.end(), result->token) - ids.begin()) + 1;
  result->n_top =
      std::clamp(row.n_top, 0, std::min(ops::kMaxTopLogprobs, static_cast<int32_t>(logits.size())));
  for (int32_t i = 0; i < result->n_top; ++i) {
    result->top_tokens[i] = ids[static_cast<size_t>(i)];
    result->top_logprobs[i] = logprob(result->top_tokens[i]);
  }
}

}  // namespace

void sample(Backend&, const ops::Sample& args) {
  for (size_t i = 0; i < args.rows.size(); ++i) {
    const ops::SampleRow& row = args.rows[i];
    ops::SampleResult& result = args.results[i];
    result = {};
    result.token = row.forced_token >= 0 ? row.forced_token : draw(drawn_logits(args, row), row);
    if (result.token >= 0 && (row.n_top >= 0 || row.forced_token >= 0)) {
      report(model_logits(args, row), row, &result);
    }
  }
}

}  // namespace pagoda::ref
