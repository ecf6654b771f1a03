#include "server/engine/vllm_names.h"

#include <string_view>

namespace pagoda::engine {
namespace {

struct Alias {
  std::string_view own;   // after "pagoda_"
  std::string_view vllm;  // after "vllm:"
};

// Some appear twice: once under today's name and once under an older one that boards still ask for.
constexpr Alias kAliases[] = {
    {"requests_running", "num_requests_running"},
    {"requests_waiting", "num_requests_waiting"},
    {"requests_finished_total", "request_success_total"},
    {"preemptions_total", "num_preemptions_total"},
    {"kv_usage_ratio", "kv_cache_usage_perc"},
    {"kv_usage_ratio", "gpu_cache_usage_perc"},
    {"kv_cache_info", "cache_config_info"},
    {"prompt_tokens_total", "prompt_tokens_total"},
    {"prompt_tokens_cached_total", "prompt_tokens_cached_total"},
    {"generation_tokens_total", "generation_tokens_total"},
    {"prompt_tokens_total", "prefix_cache_queries_total"},
    {"prompt_tokens_cached_total", "prefix_cache_hits_total"},
    {"step_rows", "iteration_tokens_total"},
    {"time_to_first_token_seconds", "time_to_first_token_seconds"},
    {"inter_token_seconds", "inter_token_latency_seconds"},
    {"inter_token_seconds", "time_per_output_token_seconds"},
    {"request_time_per_output_token_seconds", "request_time_per_output_token_seconds"},
    {"request_seconds", "e2e_request_latency_seconds"},
    {"request_queue_seconds", "request_queue_time_seconds"},
    {"request_run_seconds", "request_inference_time_seconds"},
    {"request_prefill_seconds", "request_prefill_time_seconds"},
    {"request_decode_seconds", "request_decode_time_seconds"},
    {"request_prompt_tokens", "request_prompt_tokens"},
    {"request_generation_tokens", "request_generation_tokens"},
    {"request_n", "request_params_n"},
};

// Labels that are called otherwise there.
constexpr Alias kLabels[] = {{"reason", "finished_reason"},
                             {"blocks", "num_gpu_blocks"},
                             {"prefix_caching", "enable_prefix_caching"}};

void rename_labels(prometheus::ClientMetric& metric, const std::string& model_name) {
  for (prometheus::ClientMetric::Label& label : metric.label) {
    for (const Alias& alias : kLabels) {
      if (label.name == alias.own) label.name = alias.vllm;
    }
  }
  metric.label.push_back({"model_name", model_name});
  metric.label.push_back({"engine", "0"});
}

}  // namespace

std::vector<prometheus::MetricFamily> vllm_families(std::span<const prometheus::MetricFamily> own,
                                                    const std::string& model_name) {
  constexpr std::string_view kPrefix = "pagoda_";
  std::vector<prometheus::MetricFamily> families;
  for (const Alias& alias : kAliases) {
    for (const prometheus::MetricFamily& family : own) {
      if (!family.name.starts_with(kPrefix)) continue;
      if (std::string_view(family.name).substr(kPrefix.size()) != alias.own) continue;
      prometheus::MetricFamily& copy = families.emplace_back(family);
      copy.name = "vllm:" + std::string(alias.vllm);
      for (prometheus::ClientMetric& metric : copy.metric) rename_labels(metric, model_name);
    }
  }
  return families;
}

}  // namespace pagoda::engine
