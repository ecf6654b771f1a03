#include "server/offline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/print.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/tokenizer/detokenizer.h"
#include "server/api/prompt.h"
#include "server/engine/output.h"
#include "server/logging.h"
#include "server/model_path.h"
#include "server/model_stack.h"

namespace pagoda {
namespace {

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
  static void print(const std::string& text) { base::print(stdout, text); }

  model::Detokenizer detokenizer_;
  absl::Status status_;
};

}  // namespace

absl::Status run_complete(const CommandLine& line, const GetEnvironment& environment) {
  ServeOptions options = line.options;
  set_up_logging("warn", LogFormat::kText);
  options.max_num_seqs = 1;
  base::SystemClock clock;
  base::PosixFileSystem fs;
  prometheus::Registry registry;
  ASSIGN_OR_RETURN(const std::string path, find_model(options.model, environment));
  ASSIGN_OR_RETURN(const std::unique_ptr<ModelStack> stack,
                   ModelStack::create(options, path, fs, clock, registry));
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
  ASSIGN_OR_RETURN(const std::string path, find_model(line.options.model, environment));
  ASSIGN_OR_RETURN(const model::LoadedModel model, model::load_model(fs, path, *backend, {}));
  std::vector<model::TokenId> ids;
  api::encode_text(*model.tokenizer, line.text, true, ids);
  const std::string text = fmt::format("{}\n", fmt::join(ids, " "));
  base::print(stdout, text);
  return absl::OkStatus();
}

}  // namespace pagoda
