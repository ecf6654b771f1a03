#include "server/app.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "base/blocking.h"
#include "base/check.h"
#include "base/print.h"
#include "base/worker_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/api/chat_prompt.h"
#include "server/api/errors.h"
#include "server/api/kv_routes.h"
#include "server/api/prompt.h"
#include "server/api/routes.h"
#include "server/api/sampling_defaults.h"
#include "server/cost_metrics.h"
#include "server/engine/output.h"
#include "server/engine/watchdog.h"
#include "server/http/server.h"
#include "server/kv_metrics.h"
#include "server/logging.h"
#include "server/model_path.h"
#include "server/model_stack.h"
#include "server/process_stats.h"
#include "server/signals.h"
#include "server/summary.h"

namespace pagoda {
namespace {

constexpr int32_t kParseThreads = 2;
constexpr int32_t kOutputThreads = 2;
// Bodies that are held at once: room for several of the largest.
constexpr int64_t kBodiesAtOnce = 8;
// Every answer that lives has at most one task there, and answers are bounded by the door.
constexpr size_t kOutputQueue = size_t{1} << 24;
constexpr std::chrono::milliseconds kDrainPoll{10};
constexpr std::chrono::milliseconds kFlushTime{2000};

// For people a block of its own; where the log is for programs, one record with a field for each.
void say_ready(const Summary& summary, bool as_record) {
  if (!spdlog::should_log(spdlog::level::info)) return;
  if (!as_record) {
    spdlog::info("ready");
    return base::print(stderr, summary_block(summary));
  }
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  for (const SummaryItem& item : summary_items(summary)) fields[std::string(item.name)] = item.text;
  log_event(spdlog::level::info, "ready", "ready", fields);
}

// Of the listener for operators.
constexpr int64_t kAdminAtOnce = 16;
constexpr int64_t kAdminConnections = 64;

uint64_t entropy() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// `pagoda serve`, from bind to the last answer.
class Serve {
 public:
  Serve(const ServeOptions& options, const GetEnvironment& environment)
      : options_(options),
        path_(model_path(options.model, environment)),
        admission_(int64_t{options.max_num_seqs} + options.max_queue,
                   kBodiesAtOnce * options.max_body_bytes),
        random_(options.seed != 0 ? options.seed : entropy()),
        log_(clock_, log_event, options.log_prompts),
        http_(http_options(), clock_, admission_),
        admin_admission_(kAdminAtOnce, kAdminAtOnce * options.max_body_bytes) {}

  uint16_t port() const { return http_.port(); }

  ~Serve() {
    if (admin_ != nullptr) admin_->stop();
    http_.stop();
    if (stack_ != nullptr) stack_->engine().stop();
    if (engine_thread_.joinable()) engine_thread_.join();
  }

  // Until a signal ends it.
  absl::Status run() {
    signals_.emplace([this](int number, int count) { on_signal(number, count); });
    RETURN_IF_ERROR(start());
    wait_for_signal();
    shut_down();
    return absl::OkStatus();
  }

  // Returns when requests are served; the destructor ends them.
  absl::Status start() {
    // The port comes first: a busy one is told before a model is loaded for nothing.
    RETURN_IF_ERROR(http_.bind(options_.host, options_.port));
    RETURN_IF_ERROR(bind_admin());
    http_.set_router(api::make_starting_router(std::string(version())));
    http_.start();
    spdlog::info("pagoda {} is loading {}", version(), path_);
    ASSIGN_OR_RETURN(stack_, ModelStack::create(options_, path_, fs_, clock_, registry_));
    RETURN_IF_ERROR(make_chat_prompter());
    RETURN_IF_ERROR(read_sampling_defaults());
    start_serving();
    return absl::OkStatus();
  }

 private:
  http::ServerOptions http_options() {
    http::ServerOptions http;
    http.max_body_bytes = options_.max_body_bytes;
    http.write_timeout = options_.slow_reader_timeout;
    http.make_error = api::listener_error;
    http.cors_allow_origins = options_.cors_allow_origins;
    http.on_answer = [this](const http::Answered& answered) { on_answer(answered); };
    return http;
  }

  absl::Status bind_admin() {
    if (options_.admin_port < 0) return absl::OkStatus();
    const std::string& host = options_.admin_host;
    const bool is_local = host == "127.0.0.1" || host == "localhost" || host == "::1";
    if (!is_local && options_.admin_key.empty()) {
      return base::invalid_argument(
          "--admin-host {} can be reached from other machines, so --admin-key is required", host);
    }
    http::ServerOptions http = http_options();
    http.n_threads = 1;
    http.max_connections = kAdminConnections;
    http.cors_allow_origins = {};
    admin_ = std::make_unique<http::Server>(http, clock_, admin_admission_);
    return admin_->bind(host, static_cast<uint16_t>(options_.admin_port));
  }

  // On an I/O thread. What comes to a handler of the API is logged there.
  void on_answer(const http::Answered& answered) {
    constexpr size_t kShownPath = 200;
    telemetry_.count_answer(answered.route, answered.status, answered.body_bytes);
    if (answered.by_listener || answered.route.empty()) {
      log_.answer(
          {.id = answered.id,
           .route = answered.route.empty() ? answered.path.substr(0, kShownPath) : answered.route,
           .status = answered.status});
    } else {
      spdlog::debug("{} {} {} {}", answered.id, answered.method, answered.route, answered.status);
    }
  }

  // On the thread of signals_.
  void on_signal(int number, int count) {
    bool is_serving = false;
    {
      std::lock_guard lock(mutex_);
      is_serving = serving_.load();
      shutting_down_ = true;
    }
    if (count == 1 && is_serving) {
      spdlog::info("signal {}: finishing the accepted requests; once more ends at once", number);
      serving_.store(false);
      wake_.notify_all();
      return;
    }
    // While the model loads there is nothing to lose, and after a second signal nothing to wait
    // for.
    spdlog::info("signal {}: ending at once", number);
    std::_Exit(count == 1 ? 0 : 128 + number);
  }

  // A model whose own template is wrong still completes texts; one that was asked for must be
  // right.
  absl::Status make_chat_prompter() {
    std::string source = stack_->tokenizer().vocabulary().chat_template;
    const bool is_asked_for = !options_.chat_template.empty();
    if (is_asked_for) {
      ASSIGN_OR_RETURN(source, read_chat_template(fs_, options_.chat_template));
    }
    if (source.empty()) return absl::OkStatus();
    auto prompter = api::ChatPrompter::create(source, stack_->tokenizer());
    if (prompter.ok()) {
      chat_ = *std::move(prompter);
    } else if (is_asked_for) {
      return base::invalid_argument("--chat-template: {}", base::message_of(prompter.status()));
    } else {
      spdlog::warn("no chat: {}", base::message_of(prompter.status()));
    }
    return absl::OkStatus();
  }

  // A GGUF file brings no sampling defaults, so only a file that was named has some.
  absl::Status read_sampling_defaults() {
    const std::string& file = options_.generation_config;
    if (file == "auto" || file == "none") return absl::OkStatus();
    constexpr size_t kMaxBytes = 1 << 20;
    const absl::StatusOr<std::string> text = fs_.read(file, kMaxBytes);
    if (!text.ok()) {
      return base::invalid_argument("--generation-config: {}", base::message_of(text.status()));
    }
    auto defaults = api::parse_generation_config(*text, stack_->tokenizer().n_vocab());
    if (!defaults.ok()) {
      return base::invalid_argument("--generation-config: {}: {}", file,
                                    base::message_of(defaults.status()));
    }
    defaults_ = *std::move(defaults);
    return absl::OkStatus();
  }

  void start_serving() {
    const auto& vocabulary = stack_->tokenizer();
    int32_t max_token_bytes = 1;
    for (int32_t id = 0; id < vocabulary.n_vocab(); ++id) {
      max_token_bytes =
          std::max(max_token_bytes, static_cast<int32_t>(vocabulary.token_bytes(id).size()));
    }
    api::ServedModel served;
    served.names = options_.served_model_names;
    if (served.names.empty()) served.names.push_back(options_.model);
    served.root = options_.model;
    served.created_s = clock_.unix_s();
    served.max_model_len = stack_->max_model_len();
    served.context_note = stack_->context_note();
    served.block_size = stack_->block_size();
    served.max_token_bytes = max_token_bytes;
    served.defaults = defaults_;
    const api::ApiLimits limits{
        .max_json_depth = options_.max_json_depth,
        .max_choices = int64_t{options_.max_num_seqs} + options_.max_queue,
        .request_timeout_us =
            std::chrono::duration_cast<std::chrono::microseconds>(options_.request_timeout).count(),
        .step_timeout_us = std::chrono::microseconds(options_.step_timeout).count()};
    outputs_ = std::make_unique<base::WorkerPool>(kOutputThreads, kOutputQueue);
    workers_ = std::make_unique<base::WorkerPool>(
        kParseThreads, static_cast<size_t>(options_.max_num_seqs + options_.max_queue));
    context_.reset(new api::Context{.engine = stack_->engine(),
                                    .tokenizer = stack_->tokenizer(),
                                    .chat = chat_.get(),
                                    .workers = *workers_,
                                    .outputs = *outputs_,
                                    .clock = clock_,
                                    .telemetry = telemetry_,
                                    .log = log_,
                                    .random = random_,
                                    .warnings = warnings_,
                                    .serving = serving_,
                                    .version = std::string(version()),
                                    .model = std::move(served),
                                    .limits = limits});
    set_up_telemetry();
    engine_thread_ = std::thread([engine = &stack_->engine()] { engine->run(); });
    watchdog_ = std::make_unique<engine::Watchdog>(stack_->engine(), clock_, options_.step_timeout,
                                                   stack_->metrics().stuck_steps);
    watchdog_->start();
    stack_->touch_pool();
    http_.set_router(api::make_router(*context_));
    if (admin_ != nullptr) {
      admin_->set_router(api::make_admin_router(*context_, options_.admin_key, [] {
        // The same way as when the process is told to end.
        ::kill(::getpid(), SIGTERM);
      }));
      admin_->start();
      spdlog::info("operators are heard at http://{}:{}", options_.admin_host, admin_->port());
    }
    print_summary();
    serving_.store(true);
  }

  // What /metrics shows beside the engine's registry.
  void set_up_telemetry() {
    const auto count = [](int64_t n) { return static_cast<double>(n); };
    const std::string& model = context_->model.names.front();
    telemetry_.set_build_info(std::string(version()),
                              std::string(stack_->capabilities().kernel_set), model);
    if (options_.metrics_vllm_names) telemetry_.set_vllm_names(model);
    telemetry_.add(stack_->metrics().requests);
    telemetry_.add(process_);
    telemetry_.add(stack_->metrics().tenants);
    kv_metrics_.emplace(stack_->tiers(), stack_->engine());
    telemetry_.add(*kv_metrics_);
    telemetry_.add_counter("pagoda_step_io_waits_total",
                           "Calls of the disk that a step waited for; there should be none",
                           [=] { return count(base::n_waits_in_scopes()); });
    if (const cache::TraceWriter* const trace = stack_->trace(); trace != nullptr) {
      telemetry_.add_counter("pagoda_trace_requests_total", "Requests written to --trace-out",
                             [=] { return count(trace->stats().n_written); });
      telemetry_.add_counter(
          "pagoda_trace_requests_lost_total",
          "Requests that were not: the queue or the file was full, or the disk",
          [=] { return count(trace->stats().n_dropped + trace->stats().n_failed); });
    }
    if (options_.cost_per_hour > 0) {
      cost_metrics_.emplace(options_.cost_per_hour, stack_->metrics(), clock_);
      telemetry_.add(*cost_metrics_);
    }
    telemetry_.add_gauge("pagoda_http_connections", "Open connections, idle ones included",
                         [=, this] { return count(http_.n_connections()); });
    telemetry_.add_gauge("pagoda_http_requests_in_flight",
                         "Requests whose answers are not yet written to the end",
                         [=, this] { return count(http_.n_busy()); });
    telemetry_.add_gauge("pagoda_admitted_requests", "Places at the door that are taken",
                         [=, this] { return count(admission_.n_admitted()); });
    telemetry_.add_gauge("pagoda_admitted_body_bytes", "Bodies of the requests at these places",
                         [=, this] { return count(admission_.n_body_bytes()); });
    telemetry_.add_gauge("pagoda_parse_tasks", "Requests that are parsed or wait for it",
                         [=, this] { return count(workers_->unfinished()); });
    telemetry_.add_counter("pagoda_log_lines_dropped_total", "Log lines that could not be written",
                           [=] { return count(n_dropped_log_lines()); });
  }

  void print_summary() const {
    const Capabilities& device = stack_->capabilities();
    const Summary summary{.served_name = context_->model.names.front(),
                          .config = stack_->config(),
                          .facts = stack_->facts(),
                          .device = std::string(device.device),
                          .kernel_set = std::string(device.kernel_set),
                          .n_threads = device.n_threads,
                          .weight_bytes = stack_->weight_bytes(),
                          .pool_bytes = stack_->pool_bytes(),
                          .block_bytes = stack_->block_bytes(),
                          .block_size = stack_->block_size(),
                          .n_groups = stack_->n_groups(),
                          .max_model_len = stack_->max_model_len(),
                          .context_note = stack_->context_note(),
                          .prefix_caching = options_.enable_prefix_caching,
                          .kv_host_bytes = options_.kv_host_size,
                          .kv_ssd_path = options_.kv_ssd_path,
                          .kv_ssd_bytes = options_.kv_ssd_size,
                          .kv_ssd_write = options_.kv_ssd_write,
                          .max_num_seqs = options_.max_num_seqs,
                          .max_queue = options_.max_queue,
                          .host = options_.host,
                          .port = http_.port()};
    say_ready(summary, options_.log_format == "json");
    if (options_.host != "127.0.0.1" && options_.host != "localhost" && options_.host != "::1") {
      spdlog::warn("{} can be reached from other machines, and no key is asked for", options_.host);
    }
  }

  void wait_for_signal() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return shutting_down_; });
  }

  bool is_idle() const {
    // A place at the door that is taken may be that of a body still on its way.
    return stack_->engine().idle() && http_.n_busy() == 0 && admission_.n_admitted() == 0 &&
           workers_->unfinished() == 0;
  }

  bool wait_until_idle(std::chrono::milliseconds timeout) {
    const int64_t deadline_us =
        clock_.now_us() + std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
    while (!is_idle()) {
      if (clock_.now_us() >= deadline_us) return false;
      std::this_thread::sleep_for(kDrainPoll);
    }
    return true;
  }

  void shut_down() {
    engine::Engine& engine = stack_->engine();
    http_.drain();
    engine.drain();
    if (!wait_until_idle(options_.shutdown_timeout)) {
      spdlog::warn("--shutdown-timeout is over; ending the requests that still run");
      workers_->stop();
      engine.abort_all(absl::UnavailableError("the server is shutting down"));
      (void)wait_until_idle(kFlushTime);  // a client that does not read is not waited for
    }
    workers_->stop();
    log_.flush();
    // Neither a task nor a step can be broken off, and taking things down would wait for it.
    if (workers_->unfinished() > 0) {
      spdlog::error("{} requests are still being parsed; ending without them",
                    workers_->unfinished());
      std::_Exit(0);
    }
    if (!engine.idle()) {
      spdlog::error("the engine's step does not end; ending without {} answers",
                    engine.stats().n_live);
      std::_Exit(0);
    }
    engine.stop();
    engine_thread_.join();
    spdlog::info("the end; {} KV blocks are in use", engine.stats().cache.n_in_use);
  }

  // Destroyed in the opposite order: outputs run their last tasks while engine, model
  // and listener still exist.
  const ServeOptions options_;
  const std::string path_;
  base::SystemClock clock_;
  base::PosixFileSystem fs_;
  const ProcessStats process_;
  prometheus::Registry registry_;
  api::Telemetry telemetry_{registry_};
  engine::Admission admission_;
  api::RandomSource random_;
  api::FieldWarnings warnings_;
  api::RequestLog log_;
  std::atomic<bool> serving_{false};
  http::Server http_;
  engine::Admission admin_admission_;
  std::unique_ptr<http::Server> admin_;  // null: no admin listener
  std::unique_ptr<ModelStack> stack_;
  std::optional<KvMetrics> kv_metrics_;
  std::optional<CostMetrics> cost_metrics_;
  std::unique_ptr<const api::ChatPrompter> chat_;
  api::SamplingDefaults defaults_;
  std::unique_ptr<engine::Watchdog> watchdog_;
  std::unique_ptr<api::Context> context_;
  std::unique_ptr<base::WorkerPool> outputs_;
  std::unique_ptr<base::WorkerPool> workers_;
  std::thread engine_thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool shutting_down_ = false;  // guarded by mutex_
  std::optional<Signals> signals_;
};

}  // namespace

absl::Status run_serve(const ServeOptions& options, const GetEnvironment& environment) {
  set_up_logging(options.log_level,
                 options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  RETURN_IF_ERROR(find_model(options.model, environment).status());
  return Serve(options, environment).run();
}

struct LocalServer::Impl {
  Impl(const ServeOptions& options, const GetEnvironment& environment)
      : serve(options, environment) {}
  Serve serve;
};

LocalServer::LocalServer() = default;
LocalServer::~LocalServer() = default;

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::start(ServeOptions options,
                                                                const GetEnvironment& environment) {
  RETURN_IF_ERROR(find_model(options.model, environment).status());
  options.host = "127.0.0.1";
  options.port = 0;
  std::unique_ptr<LocalServer> server(new LocalServer());
  server->impl_ = std::make_unique<Impl>(options, environment);
  RETURN_IF_ERROR(server->impl_->serve.start());
  return server;
}

uint16_t LocalServer::port() const { return impl_->serve.port(); }

}  // namespace pagoda
