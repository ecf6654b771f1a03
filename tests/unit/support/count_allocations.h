// How often this program has called operator new, for tests that a step allocates nothing.
#pragma once

#include <cstdint>

namespace pagoda::test {

int64_t count_allocations();

}  // namespace pagoda::test
