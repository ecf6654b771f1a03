// What the engine's own decoder says of known texts, for the oracle test:
//
//   logits_tool MODEL.gguf [MAX_ROWS] < ids
//
// A line of standard input is a text as token ids. For each text a JSON array comes out on one
// line, with an object for each position that has a next token: the most likely next token, its log
// probability, and the log probability of the token that follows. Prompts run in chunks, over
// blocks in shuffled order, as in the server.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fs.h"
#include "kernels/cpu/cpu_backend.h"
#include "model/config.h"
#include "model/decoder_runner.h"
#include "model/gguf.h"
#include "model/weights.h"

namespace pagoda {
namespace {

class LogitsTool {
 public:
  LogitsTool(Backend& backend, model::DecoderRunner& runner) : backend_(backend), runner_(runner) {}

  absl::Status run(std::istream& in, std::ostream& out) {
    std::string line;
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::vector<int32_t> ids;
      for (int32_t id = 0; fields >> id;) {
        if (id < 0 || id >= runner_.n_vocab()) return base::invalid_argument("no token {}", id);
        ids.push_back(id);
      }
      if (!fields.eof()) return base::invalid_argument("not a list of token ids: {}", line);
      nlohmann::json answers = nlohmann::json::array();
      RETURN_IF_ERROR(make_pool(ids.size()));
      const auto max_rows = static_cast<size_t>(runner_.max_rows());
      for (size_t begin = 0; begin < ids.size(); begin += max_rows) {
        run_chunk(ids, begin, std::min(begin + max_rows, ids.size()), answers);
      }
      out << answers.dump() << "\n";
    }
    return absl::OkStatus();
  }

 private:
  // A pool of twice the blocks that the text needs, and its table in random order.
  absl::Status make_pool(size_t n_tokens) {
    KvView kv = runner_.kv_shape().page;
    const auto n_blocks = static_cast<int32_t>(n_tokens) / kv.block_size + 1;
    kv.n_blocks = 2 * n_blocks;
    ASSIGN_OR_RETURN(pool_, backend_.allocate(static_cast<size_t>(kv.pool_bytes())));
    kv.base = pool_.as<uint8_t>();
    runner_.set_kv(kv);
    std::vector<int32_t> order(static_cast<size_t>(kv.n_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    std::vector<BlockId> table;
    for (int32_t i = 0; i < n_blocks; ++i) table.emplace_back(order[static_cast<size_t>(i)]);
    tables_.assign(static_cast<size_t>(runner_.kv_shape().n_groups), table);
    return absl::OkStatus();
  }

  void run_chunk(const std::vector<int32_t>& ids, size_t begin, size_t end,
                 nlohmann::json& answers) {
    std::vector<model::StepRow> rows;
    std::vector<model::SampleRequest> requests;
    for (size_t i = begin; i < end; ++i) {
      const bool has_next = i + 1 < ids.size();
      rows.push_back({.token = ids[i],
                      .slot = SlotId(0),
                      .position = static_cast<int32_t>(i),
                      .adapter = AdapterId(0),
                      .want = has_next ? model::Want::kLogprob : model::Want::kNone});
      if (!has_next) continue;
      model::SampleRequest request{
          .row = static_cast<int32_t>(i - begin), .slot = {}, .params = {}};
      request.params.n_top = 1;
      request.params.forced_token = ids[i + 1];
      requests.push_back(request);
    }
    const model::StepSeq seq{.row_begin = 0,
                             .n_rows = static_cast<int32_t>(end - begin),
                             .position = static_cast<int32_t>(begin),
                             .tables = tables_};
    const model::Ticket step = runner_.forward({.rows = rows, .seqs = {&seq, 1}});
    const model::Ticket draws = runner_.sample(step, {.requests = requests});
    for (const ops::SampleResult& result : runner_.fetch(draws)) {
      answers.push_back({{"top", result.top_tokens[0]},
                         {"top_logprob", result.top_logprobs[0]},
                         {"next_logprob", result.logprob}});
    }
  }

  Backend& backend_;
  model::DecoderRunner& runner_;
  Buffer pool_;
  std::vector<std::vector<BlockId>> tables_;  // [n_groups]
};

absl::Status run(const std::string& path, int32_t max_rows) {
  base::PosixFileSystem fs;
  ASSIGN_OR_RETURN(const auto file, model::GgufFile::open(fs, path));
  ASSIGN_OR_RETURN(const model::ModelConfig config, model::config_from_gguf(*file));
  ASSIGN_OR_RETURN(const auto backend, CpuBackend::create({}));
  ASSIGN_OR_RETURN(const model::Weights weights, model::load_weights(*file, config, *backend, {}));
  ASSIGN_OR_RETURN(const auto runner,
                   model::DecoderRunner::create(*backend, config, weights,
                                                {.max_rows = max_rows, .n_slots = 1}));
  return LogitsTool(*backend, *runner).run(std::cin, std::cout);
}

}  // namespace
}  // namespace pagoda

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "usage: logits_tool MODEL.gguf [MAX_ROWS] < ids\n");
    return 2;
  }
  const int max_rows = argc == 3 ? std::atoi(argv[2]) : 48;
  if (max_rows < 1) {
    fmt::print(stderr, "logits_tool: MAX_ROWS must be at least 1\n");
    return 2;
  }
  const absl::Status status = pagoda::run(argv[1], max_rows);
  if (status.ok()) return 0;
  fmt::print(stderr, "logits_tool: {}\n", pagoda::base::message_of(status));
  return 1;
}
