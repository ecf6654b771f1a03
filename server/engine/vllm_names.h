// Pagoda's metrics under the names that dashboards and routers made for vLLM look for.
#pragma once

#include <prometheus/metric_family.h>

#include <span>
#include <string>
#include <vector>

namespace pagoda::engine {

// Copies of those families that have such a name, with the labels `model_name` and `engine` that
// go with it. A view of what was collected: nothing is counted for it.
std::vector<prometheus::MetricFamily> vllm_families(std::span<const prometheus::MetricFamily> own,
                                                    const std::string& model_name);

}  // namespace pagoda::engine
