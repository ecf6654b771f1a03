// Sampling on the CPU. Any thread pool and Isa; a row's result depends on the row and its logits
// alone, so neither threads nor the rest of the batch show in it.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace pagoda::cpu {

// What ops.h says, and in detail:
//
// - Logits that are NaN count as minus infinity, also after bias and penalties. If all are minus
//   infinity the token is -1.
// - top_k 1, top_p <= 0 and min_p >= 1 take the largest logit, lowest id first, as a temperature
//   below kGreedyTemperature does. top_k < 1 or >= vocab, top_p >= 1 and min_p <= 0 are off.
// - top_k and top_p order tokens by falling logit, lowest id first. top_p keeps the shortest
//   start of that order whose mass is at least top_p of what min_p and top_k have left.
// - The rank counts tokens in the same order.
// - Only a row with allowed tokens, a bias or counts is copied, once: that costs what the copy and
//   the lists do.
//
// A row is never sorted as a whole: candidates near the maximum are collected, from a wider range
// each time until they suffice.
void run_sample(ThreadPool& pool, const Isa& isa, const ops::Sample& args);

}  // namespace pagoda::cpu
