#include "tests/unit/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> n_allocations = 0;
}  // namespace

// The program's own, in a file apart: where they are inlined, the compiler takes their malloc and
// free for a mismatch.
// The form that doesn't throw (std::stable_sort calls it) is given back by the same delete.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace pagoda::test {

int64_t count_allocations() { return n_allocations.load(std::memory_order_relaxed); }

}  // namespace pagoda::test
