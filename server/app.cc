#include "server/app.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/worker_pool.h"
#include "kernels/cpu/cpu_backend.h"
#include "server/api/chat_prompt.h"
#include "server/api/errors.h"
#include "server/api/prompt.h"
#include "server/api/routes.h"
#include "server/engine/output.h"
#include "server/engine/watchdog.h"
#include "server/http/server.h"
#include "server/logging.h"
#include "server/model_stack.h"
#include "server/process_stats.h"
#include "server/signals.h"

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
        signals_([this](int number, int count) { on_signal(number, count); }) {}

  ~Serve() {
    http_.stop();
    if (stack_ != nullptr) stack_->engine().stop();
    if (engine_thread_.joinable()) engine_thread_.join();
  }

  absl::Status run() {
    http::raise_descriptor_limit();
    // The port comes first: a busy one is told before a model is loaded for nothing.
    RETURN_IF_ERROR(http_.bind(options_.host, options_.port));
    http_.set_router(api::make_starting_router(std::string(version())));
    http_.start();
    spdlog::info("pagoda {} is loading {}", version(), path_);
    ASSIGN_OR_RETURN(stack_, ModelStack::create(options_, path_, fs_, clock_, registry_));
    make_chat_prompter();
    start_serving();
    wait_for_signal();
    shut_down();
    return absl::OkStatus();
  }

 private:
  http::ServerOptions http_options() {
    http::ServerOptions http;
    http.max_body_bytes = options_.max_body_bytes;
    http.write_timeout = options_.slow_reader_timeout;
    http.make_error = api::listener_error;
    http.on_answer = [this](const http::Answered& answered) { on_answer(answered); };
    return http;
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

  // A model whose template is wrong still completes texts.
  void make_chat_prompter() {
    const std::string& source = stack_->tokenizer().vocabulary().chat_template;
    if (source.empty()) return;
    auto prompter = api::ChatPrompter::create(source, stack_->tokenizer());
    if (prompter.ok()) {
      chat_ = *std::move(prompter);
    } else {
      spdlog::warn("no chat: {}", base::message_of(prompter.status()));
    }
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
    const model::ModelConfig& config = stack_->config();
    const int64_t tokens = stack_->pool_tokens();
    const int64_t len = stack_->max_model_len();
    spdlog::info("model   {} ({}, {} layers, {} heads), context {}{}",
                 context_->model.names.front(), config.architecture, config.n_layers,
                 config.n_heads, len,
                 stack_->context_note().empty() ? "" : ": " + stack_->context_note());
    spdlog::info("device  {}, {} kernels, {} threads", stack_->capabilities().device,
                 stack_->capabilities().kernel_set, stack_->capabilities().n_threads);
    spdlog::info("KV pool {:.1f} MiB, {} tokens: {} conversations of {} tokens or {} of 2048",
                 static_cast<double>(stack_->pool_bytes()) / 0x1p20, tokens, tokens / len, len,
                 tokens / 2048);
    if (options_.host != "127.0.0.1" && options_.host != "localhost" && options_.host != "::1") {
      spdlog::warn("{} can be reached from other machines, and no key is asked for", options_.host);
    }
    const std::string host =
        options_.host.find(':') == std::string::npos ? options_.host : "[" + options_.host + "]";
    const std::string url = fmt::format("http://{}:{}", host, http_.port());
    spdlog::info("ready   {}; try:", url);
    spdlog::info("  curl {}/v1/completions -H 'Content-Type: application/json' -d '{}'", url,
                 R"({"prompt": "The capital of France is", "max_tokens": 16})");
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
  std::unique_ptr<ModelStack> stack_;
  std::unique_ptr<const api::ChatPrompter> chat_;
  std::unique_ptr<engine::Watchdog> watchdog_;
  std::unique_ptr<api::Context> context_;
  std::unique_ptr<base::WorkerPool> outputs_;
  std::unique_ptr<base::WorkerPool> workers_;
  std::thread engine_thread_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool shutting_down_ = false;  // guarded by mutex_
  Signals signals_;
};

// Writes what is certain of an answer as soon as it is.
class Printer final : public engine::TokenSink {
 public:
  explicit Printer(const model::Tokenizer& tokenizer) : detokenizer_(tokenizer, true) {}

  void push(engine::TokenEvent&& event) override {
    switch (event.kind) {
      case engine::TokenEvent::Kind::kPrompt:
        return;
      case engine::TokenEvent::Kind::kToken:
        print(detokenizer_.push(event.result.token));
        return;
      case engine::TokenEvent::Kind::kFinish:
        print(detokenizer_.finish() + "\n");
        status_ = std::move(event.error);
        return;
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  model::Detokenizer detokenizer_;
  absl::Status status_;
};

}  // namespace

absl::Status run_serve(const ServeOptions& options, const GetEnvironment& environment) {
  set_up_logging(options.log_level,
                 options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  return Serve(options, environment).run();
}

absl::Status run_complete(const CommandLine& line, const GetEnvironment& environment) {
  ServeOptions options = line.options;
  set_up_logging("warn", LogFormat::kText);
  options.max_num_seqs = 1;
  base::SystemClock clock;
  base::PosixFileSystem fs;
  prometheus::Registry registry;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelStack> stack,
      ModelStack::create(options, model_path(options.model, environment), fs, clock, registry));
  engine::Request request;
  api::encode_text(stack->tokenizer(), line.text, true, request.prompt);
  if (request.prompt.empty()) return base::invalid_argument("PROMPT has no tokens");
  const int64_t room = stack->max_model_len() - std::ssize(request.prompt);
  if (room < 1) {
    return base::invalid_argument("PROMPT has {} tokens, and the context has {}",
                                  request.prompt.size(), stack->max_model_len());
  }
  request.id = RequestId(1);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(line.max_tokens, room));
  // Shared, as the engine shares every sink; the status is read after the engine's last call.
  const auto printer = std::make_shared<Printer>(stack->tokenizer());
  request.sink = printer;
  RETURN_IF_ERROR(stack->engine().submit(std::move(request)));
  while (stack->engine().step()) {
  }
  return printer->status();
}

absl::Status run_tokenize(const CommandLine& line, const GetEnvironment& environment) {
  set_up_logging("warn", LogFormat::kText);
  base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(const auto backend, CpuBackend::create({.n_threads = 1}));
  ASSIGN_OR_RETURN(
      const model::LoadedModel model,
      model::load_model(fs, model_path(line.options.model, environment), *backend, {}));
  std::vector<model::TokenId> ids;
  api::encode_text(*model.tokenizer, line.text, true, ids);
  const std::string text = fmt::format("{}\n", fmt::join(ids, " "));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace pagoda
