// Memory of the CPU backend: zeroed, aligned, not yet touched, in huge pages where it is large.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace pagoda::cpu {

// Any thread may call. kResourceExhausted when the system declines.
absl::StatusOr<Buffer> map_memory(size_t bytes);

}  // namespace pagoda::cpu
