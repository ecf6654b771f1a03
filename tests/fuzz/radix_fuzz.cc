// The radix tree against a map that does the same the slow way.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/radix_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMost = 2000;
  pagoda::cache::RadixModel({data, size < kMost ? size : kMost}).run();
  return 0;
}
