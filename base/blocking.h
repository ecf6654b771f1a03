// Calls that wait for a disk, and threads that must not.
#pragma once

#include <cstdint>

namespace pagoda::base {

// While one lives, waiting calls of its thread are counted: what runs in it should make none.
class NoWaitScope {
 public:
  NoWaitScope();
  ~NoWaitScope();
  NoWaitScope(const NoWaitScope&) = delete;
  NoWaitScope& operator=(const NoWaitScope&) = delete;

 private:
  const bool was_in_one_;
};

// Who is about to wait for a disk says so.
void note_wait();

// By all threads, since the process began.
int64_t n_waits_in_scopes();

}  // namespace pagoda::base
