#include "server/kv_metrics.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace pagoda {
namespace {

using cache::TierKind;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Label {
  std::string name;
  std::string value;
};

// Families in the making: a value joins the family of its name.
class Families {
 public:
  void counter(const char* name, const char* help, double value, std::vector<Label> labels = {}) {
    prometheus::ClientMetric& metric = add(name, help, MetricType::Counter, std::move(labels));
    metric.counter.value = value;
  }
  void counter(const char* name, const char* help, int64_t value, std::vector<Label> labels = {}) {
    counter(name, help, static_cast<double>(value), std::move(labels));
  }
  void gauge(const char* name, const char* help, int64_t value, std::vector<Label> labels = {}) {
    prometheus::ClientMetric& metric = add(name, help, MetricType::Gauge, std::move(labels));
    metric.gauge.value = static_cast<double>(value);
  }
  void histogram(const char* name, const char* help, const cache::LatencyCounts& counts,
                 std::vector<Label> labels) {
    prometheus::ClientMetric& metric = add(name, help, MetricType::Histogram, std::move(labels));
    uint64_t n = 0;
    for (size_t i = 0; i < counts.counts.size(); ++i) {
      n += static_cast<uint64_t>(counts.counts[i]);
      const bool is_last = i == counts.kBounds.size();
      metric.histogram.bucket.push_back({n, is_last
                                                ? std::numeric_limits<double>::infinity()
                                                : static_cast<double>(counts.kBounds[i]) * 1e-6});
    }
    metric.histogram.sample_count = n;
    metric.histogram.sample_sum = static_cast<double>(counts.sum_us) * 1e-6;
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& add(const char* name, const char* help, MetricType type,
                                std::vector<Label> labels) {
    const std::string full = std::string("pagoda_kv_") + name;
    auto family = std::ranges::find(families_, full, &MetricFamily::name);
    if (family == families_.end()) {
      family = families_.insert(family, MetricFamily{full, help, type, {}});
    }
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    for (Label& label : labels) metric.label.push_back({label.name, label.value});
    return metric;
  }
  std::vector<MetricFamily> families_;
};

struct NamedTier {
  TierKind kind;
  const char* name;
};
constexpr NamedTier kBelow[] = {{TierKind::kHost, "host"}, {TierKind::kSsd, "ssd"}};

void add_transfers(Families& out, const cache::TransferStats& transfers) {
  const auto each = [&](const char* name, const char* help, auto value) {
    for (const NamedTier& tier : kBelow) {
      out.counter(name, help, value(transfers.tiers[static_cast<size_t>(tier.kind)]),
                  {{"tier", tier.name}});
    }
  };
  using One = cache::TransferStats::OneTier;
  each("restored_blocks_total", "Blocks brought up from a tier",
       [](const One& t) { return t.n_restored; });
  each("restored_bytes_total", "Bytes brought up from a tier",
       [](const One& t) { return t.restored_bytes; });
  each("restore_failed_blocks_total", "Blocks that a tier could not give; they were computed",
       [](const One& t) { return t.n_failed; });
  each("offloaded_blocks_total", "Blocks copied down to a tier",
       [](const One& t) { return t.n_offloaded; });
  each("offloaded_bytes_total", "Bytes copied down to a tier",
       [](const One& t) { return t.offloaded_bytes; });
  each("offload_declined_blocks_total", "Blocks that a tier did not take",
       [](const One& t) { return t.n_declined; });
  for (const NamedTier& tier : kBelow) {
    const One& one = transfers.tiers[static_cast<size_t>(tier.kind)];
    const char* const kHelp = "A block's way between the device and a tier; several run at once";
    out.histogram("transfer_block_seconds", kHelp, one.restores,
                  {{"tier", tier.name}, {"direction", "restore"}});
    out.histogram("transfer_block_seconds", kHelp, one.offloads,
                  {{"tier", tier.name}, {"direction", "offload"}});
  }
  out.gauge("restores_waiting_blocks", "Blocks that wait to be brought up",
            transfers.n_restores_waiting());
  out.gauge("offloads_waiting_blocks", "Blocks that wait to be copied down",
            transfers.n_offloads_waiting);
}

void add_cache(Families& out, const cache::KvCacheStats& stats) {
  const NamedTier device{TierKind::kDevice, "device"};
  for (const NamedTier& tier : {device, kBelow[0], kBelow[1]}) {
    const auto& left = stats.n_left[static_cast<size_t>(tier.kind)];
    for (const cache::Cause cause : cache::kCauses) {
      out.counter("evicted_copies_total", "Copies that left a tier, by why",
                  left[static_cast<size_t>(cause)],
                  {{"tier", tier.name}, {"reason", cache::cause_name(cause)}});
    }
    out.gauge("tier_blocks", "Blocks with a copy in a tier that can be found there",
              stats.n_on[static_cast<size_t>(tier.kind)], {{"tier", tier.name}});
  }
  out.counter("hit_tokens_total", "Prompt tokens found, by where", stats.n_hit_tokens,
              {{"tier", "device"}});
  for (const NamedTier& tier : kBelow) {
    out.counter("hit_tokens_total", "Prompt tokens found, by where",
                stats.n_restored_tokens[static_cast<size_t>(tier.kind)], {{"tier", tier.name}});
  }
  out.counter("offload_skipped_blocks_total", "Blocks not copied down, for want of room or budget",
              stats.n_offloads_skipped);
  const char* const kHelp = "What was done about KV found below the device";
  out.counter("restore_decisions_total", kHelp, stats.n_restore_all, {{"decision", "restore"}});
  out.counter("restore_decisions_total", kHelp, stats.n_recompute_all, {{"decision", "recompute"}});
  out.counter("restore_decisions_total", kHelp, stats.n_restore_both, {{"decision", "both"}});
  out.counter("restores_total", "Restores that ended, by outcome", stats.n_restores_done,
              {{"outcome", "used"}});
  out.counter("restores_total", "Restores that ended, by outcome", stats.n_restores_failed,
              {{"outcome", "failed"}});
  out.counter("restore_predicted_seconds_total", "What the restores used were predicted to take",
              stats.predicted_s);
  out.counter("restore_actual_seconds_total", "What they took", stats.actual_s);
}

void add_tier(Families& out, const cache::TierStats& stats, const char* name) {
  out.gauge("tier_bytes", "Bytes that a tier holds", stats.bytes, {{"tier", name}});
  out.gauge("tier_capacity_bytes", "Bytes that a tier may hold", stats.capacity_bytes,
            {{"tier", name}});
  const char* const kHelp = "Blocks that a tier had lost or damaged, by cause";
  out.counter("tier_errors_total", kHelp, stats.n_errors_io, {{"tier", name}, {"cause", "io"}});
  out.counter("tier_errors_total", kHelp, stats.n_errors_checksum,
              {{"tier", name}, {"cause", "checksum"}});
  out.gauge("tier_off", "1 while a tier is switched off after errors", stats.is_off ? 1 : 0,
            {{"tier", name}});
}

void add_ssd(Families& out, const cache::SsdStats& stats) {
  add_tier(out, stats.tier, "ssd");
  out.counter("ssd_written_bytes_total", "Bytes written to the SSD", stats.tier.bytes_written);
  out.counter("ssd_rewritten_bytes_total", "Of those, what the cleaner wrote again",
              stats.bytes_rewritten);
  out.counter("ssd_read_bytes_total", "Bytes read from the SSD", stats.tier.bytes_read);
  out.counter("ssd_skipped_bytes_total", "Bytes not written because the day's were used up",
              stats.bytes_skipped);
  out.gauge("ssd_budget_bytes", "Bytes that may be written now", stats.budget_bytes);
  out.gauge("ssd_segments", "Segment files", stats.n_segments);
  out.counter("ssd_scanned_records_total", "Records found in the folder at the start",
              stats.n_scanned_records);
  out.counter("ssd_scan_rejects_total", "Odd records met by the scan at the start",
              stats.n_scan_rejects);
  out.gauge("ssd_scan_done", "1 once the folder has been read", stats.scan_done ? 1 : 0);
}

}  // namespace

std::vector<MetricFamily> KvMetrics::Collect() const {
  Families out;
  const engine::EngineStats stats = engine_.stats();
  add_cache(out, stats.cache);
  for (size_t i = 0; i < cache::kSessionStates.size(); ++i) {
    out.gauge("sessions", "Sessions that are remembered, by where their KV was moved",
              stats.n_sessions[i], {{"state", cache::kSessionStates[i]}});
  }
  if (tiers_ == nullptr) return out.take();
  add_transfers(out, tiers_->transfer_stats());
  if (tiers_->host() != nullptr) add_tier(out, tiers_->host()->stats(), "host");
  if (tiers_->ssd() != nullptr) add_ssd(out, tiers_->ssd()->ssd_stats());
  return out.take();
}

}  // namespace pagoda
