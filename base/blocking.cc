#include "base/blocking.h"

#include <atomic>
#include <utility>

namespace pagoda::base {
namespace {

thread_local bool is_in_scope = false;
std::atomic<int64_t> n_waits{0};

}  // namespace

NoWaitScope::NoWaitScope() : was_in_one_(std::exchange(is_in_scope, true)) {}
NoWaitScope::~NoWaitScope() { is_in_scope = was_in_one_; }

void note_wait() {
  if (is_in_scope) n_waits.fetch_add(1, std::memory_order_relaxed);
}

int64_t n_waits_in_scopes() { return n_waits.load(std::memory_order_relaxed); }

}  // namespace pagoda::base
