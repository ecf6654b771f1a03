#include "cache/cost_model.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda::cache {
namespace {

// The last 50 observations carry 64 % of the weight.
constexpr double kFade = 0.98;
// A split must finish sooner than the better of the two plain ways by this factor.
constexpr double kWorthSplitting = 1.05;

// Guesses until something was measured, in us: a slow model and tiers that are no faster than the
// slowest in use.
constexpr double kGuessedRow = 1000;
constexpr std::array<double, 3> kGuessedBlock = {0, 1000, 5000};

constexpr int32_t bucket_end(int bucket) { return int32_t{1} << (bucket + 9); }

double bucket_middle(int bucket) {
  return bucket == 0 ? bucket_end(0) / 2 : 0.75 * bucket_end(bucket);
}

// Calls each(bucket, n_rows) for the parts of [begin, end).
template <typename Each>
void for_each_bucket(int64_t begin, int64_t end, int n_buckets, Each each) {
  begin = std::max<int64_t>(begin, 0);
  for (int bucket = 0; bucket < n_buckets && begin < end; ++bucket) {
    const bool is_last = bucket + 1 == n_buckets;
    const int64_t until = is_last ? end : std::min<int64_t>(end, bucket_end(bucket));
    if (until <= begin) continue;
    each(bucket, until - begin);
    begin = until;
  }
}

int32_t n_total_blocks(const RestoreQuestion& question) {
  int32_t n = 0;
  for (const int32_t n_of_tier : question.n_blocks) n += n_of_tier;
  return n;
}

// The borders of a stretch's blocks: the 0th is its begin, the n-th its end.
struct Borders {
  explicit Borders(const RestoreQuestion& question)
      : question(question),
        first(question.begin / question.block_size),
        n((question.end - 1) / question.block_size + 1 - first) {}

  int32_t operator[](int32_t i) const {
    if (i == 0) return question.begin;
    const int64_t border = (int64_t{first} + i) * question.block_size;
    return static_cast<int32_t>(std::min<int64_t>(border, question.end));
  }

  const RestoreQuestion& question;
  const int32_t first;
  const int32_t n;
};

}  // namespace

void CostModel::Rate::add(double more_us, double more_n) {
  us = us * kFade + more_us;
  n = n * kFade + more_n;
}

void CostModel::observe_prefill(int32_t position, int32_t n_rows, int64_t us) {
  if (position < 0 || n_rows <= 0 || us < 0) return;
  const double us_a_row = static_cast<double>(us) / n_rows;
  for_each_bucket(position, int64_t{position} + n_rows, kBuckets, [&](int bucket, int64_t n) {
    const auto n_of_bucket = static_cast<double>(n);
    rows_[static_cast<size_t>(bucket)].add(us_a_row * n_of_bucket, n_of_bucket);
  });
}

void CostModel::observe_restore(TierKind tier, int32_t n_blocks, int64_t us, int64_t first_us) {
  if (n_blocks <= 0 || us < 0 || first_us < 0) return;
  latency_[static_cast<size_t>(tier)].add(static_cast<double>(std::min(first_us, us)), 1);
  if (n_blocks == 1) return;
  blocks_[static_cast<size_t>(tier)].add(static_cast<double>(us), n_blocks);
}

// Between two measured buckets a row's cost is on the line through both, as attention's is; outside
// of them it is the nearest one's.
double CostModel::row_us(int bucket) const {
  int below = bucket;
  int above = bucket;
  while (below >= 0 && !rows_[static_cast<size_t>(below)].is_measured()) --below;
  while (above < kBuckets && !rows_[static_cast<size_t>(above)].is_measured()) ++above;
  if (below < 0 && above == kBuckets) return kGuessedRow;
  if (below < 0) return rows_[static_cast<size_t>(above)].us_per_one();
  const double us_below = rows_[static_cast<size_t>(below)].us_per_one();
  if (above == kBuckets || above == below) return us_below;
  const double us_above = rows_[static_cast<size_t>(above)].us_per_one();
  const double part = (bucket_middle(bucket) - bucket_middle(below)) /
                      (bucket_middle(above) - bucket_middle(below));
  return us_below + part * (us_above - us_below);
}

double CostModel::mean_row_us() const {
  Rate all;
  for (const Rate& rate : rows_) {
    all.us += rate.us;
    all.n += rate.n;
  }
  return all.is_measured() ? all.us_per_one() : kGuessedRow;
}

double CostModel::latency_us(size_t tier) const {
  return latency_[tier].is_measured() ? latency_[tier].us_per_one() : kGuessedBlock[tier];
}

// Where blocks only ever came alone, no faster than that.
double CostModel::block_us(size_t tier) const {
  return blocks_[tier].is_measured() ? blocks_[tier].us_per_one() : latency_us(tier);
}

// As many as come at once take no longer than one.
double CostModel::restore_us(size_t tier, double n_blocks) const {
  if (n_blocks <= 0) return 0;
  return std::max(latency_us(tier), n_blocks * block_us(tier));
}

double CostModel::prefill_s(int32_t begin, int32_t end) const {
  double us = 0;
  for_each_bucket(begin, end, kBuckets,
                  [&](int bucket, int64_t n) { us += static_cast<double>(n) * row_us(bucket); });
  return us * 1e-6;
}

double CostModel::restore_s(TierKind tier, int32_t n_blocks) const {
  return restore_us(static_cast<size_t>(tier), n_blocks) * 1e-6;
}

double CostModel::recompute_s(const RestoreQuestion& question, int32_t split) const {
  if (split <= question.begin) return 0;
  return question.n_rows_queued * mean_row_us() * 1e-6 + prefill_s(question.begin, split);
}

// The last n_columns of the stretch's blocks, a column being one of each group. A tier never lacks
// a block whose child it has (other than a slower one), so the slower tiers' lie at the back.
double CostModel::restore_last_s(const RestoreQuestion& question, int32_t n_columns,
                                 int32_t of) const {
  if (n_columns <= 0) return 0;
  double n_left = static_cast<double>(n_total_blocks(question)) * n_columns / of;
  double us = 0;
  for (size_t tier = question.n_blocks.size(); tier-- > 0;) {
    const double n = std::min<double>(n_left, question.n_blocks[tier]);
    n_left -= n;
    us += restore_us(tier, n) + question.n_queued[tier] * block_us(tier);
  }
  return us * 1e-6;
}

bool CostModel::is_measured(const RestoreQuestion& question) const {
  for (size_t tier = static_cast<size_t>(TierKind::kHost); tier < latency_.size(); ++tier) {
    if (question.n_blocks[tier] > 0 && !latency_[tier].is_measured()) return false;
  }
  return std::any_of(rows_.begin(), rows_.end(), [](const Rate& r) { return r.is_measured(); });
}

RestoreAnswer CostModel::decide(const RestoreQuestion& question) const {
  CHECK_GT(question.block_size, 0);
  CHECK_GE(question.begin, 0);
  RestoreAnswer answer;
  answer.split = question.begin;
  if (question.end <= question.begin) return answer;
  const Borders borders(question);
  const bool has_blocks = n_total_blocks(question) > 0;
  answer.recompute_all_s = recompute_s(question, question.end);
  answer.restore_all_s =
      has_blocks ? restore_last_s(question, borders.n, borders.n) : answer.recompute_all_s;

  const auto choose = [&](int32_t split, double seconds) {
    answer.split = split;
    answer.predicted_s = seconds;
    return answer;
  };
  const RestoreAnswer restore_all = choose(question.begin, answer.restore_all_s);
  const RestoreAnswer recompute_all = choose(question.end, answer.recompute_all_s);
  if (!has_blocks || policy_ == RestorePolicy::kRecompute) return recompute_all;
  if (policy_ == RestorePolicy::kRestore || !is_measured(question)) return restore_all;

  // Up the borders the computing takes longer and the restoring less, so the best one is the first
  // where the computing is the longer, or the one before it.
  int32_t low = 1;
  int32_t high = borders.n;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (recompute_s(question, borders[middle]) >=
        restore_last_s(question, borders.n - middle, borders.n)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const bool is_restore_better = restore_all.predicted_s <= recompute_all.predicted_s;
  RestoreAnswer best = is_restore_better ? restore_all : recompute_all;
  double limit_s = best.predicted_s / kWorthSplitting;
  for (const int32_t at : {low - 1, low}) {
    if (at < 1 || at >= borders.n) continue;
    const double seconds = std::max(recompute_s(question, borders[at]),
                                    restore_last_s(question, borders.n - at, borders.n));
    if (seconds >= limit_s) continue;
    limit_s = seconds;
    best = choose(borders[at], seconds);
  }
  return best;
}

}  // namespace pagoda::cache
