// What the handlers of all routes share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/worker_pool.h"
#include "model/tokenizer/tokenizer.h"
#include "server/api/chat_prompt.h"
#include "server/api/json.h"
#include "server/api/request_log.h"
#include "server/api/sampling_defaults.h"
#include "server/api/telemetry.h"
#include "server/engine/engine.h"
#include "server/http/exchange.h"

namespace pagoda::api {

// Random numbers for seeds and ids. Any thread.
class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : generator_(seed) {}
  uint64_t next() {
    std::lock_guard lock(mutex_);
    return generator_();
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 generator_;  // guarded by mutex_
};

struct ServedModel {
  std::vector<std::string> names;  // never empty; the first is the one that answers carry
  std::string root;                // MODEL as given
  int64_t created_s = 0;
  int32_t max_model_len = 0;
  std::string context_note;  // why max_model_len is lower than asked for; empty: it is not
  int32_t block_size = 0;
  int32_t max_token_bytes = 1;  // of the longest token
  SamplingDefaults defaults = {};
};

struct ApiLimits {
  int32_t max_json_depth = 128;
  int64_t max_choices = 256;  // answers that one request may ask for
  int64_t request_timeout_us = 0;
  int64_t step_timeout_us = 0;  // an engine that makes no step for longer is not alive
};

// Everything is borrowed and lives longer than the last exchange. Any thread.
struct Context {
  engine::Engine& engine;
  const model::Tokenizer& tokenizer;
  const ChatPrompter* chat;   // null: the model has no chat template
  base::WorkerPool& workers;  // parses and tokenizes
  base::WorkerPool& outputs;  // detokenizes and writes answers; room for every live answer
  const base::Clock& clock;
  Telemetry& telemetry;
  RequestLog& log;
  RandomSource& random;
  FieldWarnings& warnings;
  const std::atomic<bool>& serving;  // false before the start is over and while draining
  std::string version;
  ServedModel model;
  ApiLimits limits;
  std::atomic<uint64_t> next_request_id{1};
};

// Runs `work` on a worker; answers 429 when all are busy and their queue is full, and 503 when the
// server is not serving. What `work` throws ends the exchange with a 500.
using Work = absl::AnyInvocable<void(const std::shared_ptr<http::Exchange>&)>;
void run_on_worker(Context& context, std::shared_ptr<http::Exchange> exchange, Work work);

// OK when `name` is empty or one of the served; else kNotFound with code model_not_found.
absl::Status check_model(const ServedModel& model, std::string_view name);

// Logs and counts the end of a request.
void log_answer(const Context& context, const AnswerLog& answer);

}  // namespace pagoda::api
