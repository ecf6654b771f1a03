// How often this program has called operator new, for tests that a step allocates nothing.
#pragma once

#include <cstdint>

namespace pagoda::model {

int64_t count_allocations();

}  // namespace pagoda::model
