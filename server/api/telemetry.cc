#include "server/api/telemetry.h"

#include <prometheus/gauge.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "server/engine/vllm_names.h"

namespace pagoda::api {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

const std::vector<double> kBodyBytes = {256,     1 << 10, 4 << 10, 16 << 10, 64 << 10,
                                        1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
const std::vector<double> kChoices = {1, 2, 4, 8, 16, 32, 64, 128};

prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const std::vector<double>& bounds) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

Telemetry::Telemetry(prometheus::Registry& registry)
    : registry_(registry),
      answers_(prometheus::BuildCounter()
                   .Name("pagoda_http_requests_total")
                   .Help("Answered requests by route and status; 499: the client left first")
                   .Register(registry)),
      body_bytes_(histogram(registry, "pagoda_http_request_body_bytes",
                            "Bodies of requests that came to a handler", kBodyBytes)),
      n_(histogram(registry, "pagoda_request_n", "Answers that one request asks for", kChoices)) {}

void Telemetry::add_gauge(std::string name, std::string help, Read read) {
  values_.push_back({std::move(name), std::move(help), false, std::move(read)});
}

void Telemetry::add_counter(std::string name, std::string help, Read read) {
  values_.push_back({std::move(name), std::move(help), true, std::move(read)});
}

void Telemetry::set_build_info(const std::string& version, const std::string& kernels,
                               const std::string& model) {
  prometheus::BuildGauge()
      .Name("pagoda_build_info")
      .Help("Always 1; the labels say what runs")
      .Register(registry_)
      .Add({{"version", version}, {"kernels", kernels}, {"model", model}})
      .Set(1);
}

void Telemetry::count_answer(std::string_view route, int status, int64_t body_bytes) {
  answers_
      .Add({{"route", route.empty() ? "none" : std::string(route)},
            {"status", std::to_string(status)}})
      .Increment();
  if (body_bytes >= 0) body_bytes_.Observe(static_cast<double>(body_bytes));
}

std::string Telemetry::text() const {
  std::vector<MetricFamily> families = registry_.Collect();
  for (const prometheus::Collectable* source : sources_) {
    std::vector<MetricFamily> more = source->Collect();
    families.insert(families.end(), std::move_iterator(more.begin()),
                    std::move_iterator(more.end()));
  }
  for (const Value& value : values_) {
    prometheus::ClientMetric metric;
    (value.is_counter ? metric.counter.value : metric.gauge.value) = value.read();
    families.push_back({value.name,
                        value.help,
                        value.is_counter ? MetricType::Counter : MetricType::Gauge,
                        {std::move(metric)}});
  }
  if (!vllm_model_name_.empty()) {
    std::vector<MetricFamily> more = engine::vllm_families(families, vllm_model_name_);
    families.insert(families.end(), std::move_iterator(more.begin()),
                    std::move_iterator(more.end()));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace pagoda::api
