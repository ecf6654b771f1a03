#include "server/app.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/worker_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/api/errors.h"
#include "server/api/routes.h"
#include "server/engine/output.h"
#include "server/http/server.h"
#include "server/model_path.h"
#include "server/model_stack.h"
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

// For people a block of its own; where the log is for programs, records of the log.
void say_ready(const Summary& summary, bool as_records) {
  if (!spdlog::should_log(spdlog::level::info)) return;
  if (as_records) {
    for (const SummaryItem& item : summary_items(summary)) {
      spdlog::info("{}: {}", item.name, item.text);
    }
  }
  spdlog::info("ready");
  if (!as_records) fmt::print(stderr, "{}", summary_block(summary));
}

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
        http_(http_options(), clock_, admission_) {}

  uint16_t port() const { return http_.port(); }

  ~Serve() {
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
    http::raise_descriptor_limit();
    // The port comes first: a busy one is told before a model is loaded for nothing.
    RETURN_IF_ERROR(http_.bind(options_.host, options_.port));
    http_.set_router(api::make_starting_router(std::string(version())));
    http_.start();
    spdlog::info("pagoda {} is loading {}", version(), path_);
    ASSIGN_OR_RETURN(stack_, ModelStack::create(options_, path_, fs_, clock_, registry_));
    start_serving();
    return absl::OkStatus();
  }

 private:
  http::ServerOptions http_options() const {
    http::ServerOptions http;
    http.max_body_bytes = options_.max_body_bytes;
    http.write_timeout = options_.slow_reader_timeout;
    http.make_error = api::listener_error;
    return http;
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
    std::_Exit(count == 1 ? 0 : 128 + number);
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
    const api::ApiLimits limits{
        .max_json_depth = options_.max_json_depth,
        .max_choices = int64_t{options_.max_num_seqs} + options_.max_queue,
        .request_timeout_us =
            std::chrono::duration_cast<std::chrono::microseconds>(options_.request_timeout)
                .count()};
    outputs_ = std::make_unique<base::WorkerPool>(kOutputThreads, kOutputQueue);
    workers_ = std::make_unique<base::WorkerPool>(
        kParseThreads, static_cast<size_t>(options_.max_num_seqs + options_.max_queue));
    context_.reset(new api::Context{.engine = stack_->engine(),
                                    .tokenizer = stack_->tokenizer(),
                                    .workers = *workers_,
                                    .outputs = *outputs_,
                                    .clock = clock_,
                                    .registry = registry_,
                                    .random = random_,
                                    .warnings = warnings_,
                                    .serving = serving_,
                                    .version = std::string(version()),
                                    .model = std::move(served),
                                    .limits = limits});
    engine_thread_ = std::thread([engine = &stack_->engine()] { engine->run(); });
    stack_->touch_pool();
    http_.set_router(api::make_router(*context_));
    print_summary();
    serving_.store(true);
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
    if (workers_->unfinished() > 0) {
      // A task cannot be broken off, and taking things down would wait for it.
      spdlog::error("{} requests are still being parsed; ending without them",
                    workers_->unfinished());
      spdlog::default_logger()->flush();
      std::_Exit(0);
    }
    spdlog::info("the end");
  }

  // Destroyed in the opposite order: outputs run their last tasks while engine, model
  // and listener still exist.
  const ServeOptions options_;
  const std::string path_;
  base::SystemClock clock_;
  base::PosixFileSystem fs_;
  prometheus::Registry registry_;
  engine::Admission admission_;
  api::RandomSource random_;
  api::FieldWarnings warnings_;
  std::atomic<bool> serving_{false};
  http::Server http_;
  std::unique_ptr<ModelStack> stack_;
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

void set_up_logging(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("pagoda"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(level));
}

absl::Status run_serve(const ServeOptions& options, const GetEnvironment& environment) {
  set_up_logging(options.log_level);
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
