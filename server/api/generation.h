// Runs the choices of an answer in the engine and sends what its dialect makes of their deltas.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "server/api/answer.h"
#include "server/api/context.h"
#include "server/http/exchange.h"

namespace pagoda::api {

// What handlers have in hand when a request arrives.
struct Arrival {
  std::string_view route;
  int64_t time_us = 0;
};

// On a worker. Submits every choice and returns; the answer goes on by itself.
void start_generation(Context& context, std::shared_ptr<http::Exchange> exchange,
                      std::unique_ptr<Answer> answer, const Arrival& arrival);

// Makes an answer out of a body. On a worker.
using MakeAnswer = absl::StatusOr<std::unique_ptr<Answer>> (*)(Context&, http::Exchange&);
// On an I/O thread: all of the above on the context's workers.
void handle_generation(Context& context, std::shared_ptr<http::Exchange> exchange,
                       std::string_view route, MakeAnswer make_answer);

// Limits for the parsers of bodies.
RequestLimits request_limits(const Context& context);
// What a parsed request still lacks: warnings, the model's name, a seed, the ids of bad words.
absl::Status finish_request(Context& context, GenerationRequest& request);
AnswerHead make_head(Context& context, const GenerationRequest& request, std::string_view prefix);

}  // namespace pagoda::api
