// What /metrics shows: the registry of the engine's metrics, what is counted of HTTP requests, and
// values that are asked for at each scrape.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::api {

class Telemetry {
 public:
  // Borrows the registry and counts on it.
  explicit Telemetry(prometheus::Registry& registry);

  // Until the first scrape, by one thread.
  // Shown beside the registry; borrowed.
  void add(const prometheus::Collectable& source) { sources_.push_back(&source); }
  // `read` is called at each scrape, on any thread, and must not wait. A counter's value never goes
  // down and its name ends in _total.
  using Read = std::function<double()>;
  void add_gauge(std::string name, std::string help, Read read);
  void add_counter(std::string name, std::string help, Read read);
  // Always 1; the labels say what runs here.
  void set_build_info(const std::string& version, const std::string& kernels,
                      const std::string& model);
  // Shows what vLLM has too under its names as well, as those of this model.
  void set_vllm_names(std::string model_name) { vllm_model_name_ = std::move(model_name); }

  // Any thread, once a request.
  // route: one of the router's; empty: there is none. body_bytes: negative: there was no body.
  void count_answer(std::string_view route, int status, int64_t body_bytes);
  void count_choices(int64_t n) { n_.Observe(static_cast<double>(n)); }

  // Any thread: the Prometheus text format. It waits for no thread of the engine.
  std::string text() const;

 private:
  struct Value {
    std::string name;
    std::string help;
    bool is_counter = false;
    Read read;
  };
  prometheus::Registry& registry_;
  prometheus::Family<prometheus::Counter>& answers_;
  prometheus::Histogram& body_bytes_;
  prometheus::Histogram& n_;
  std::vector<const prometheus::Collectable*> sources_;
  std::vector<Value> values_;
  std::string vllm_model_name_;  // empty: without those names
};

}  // namespace pagoda::api
