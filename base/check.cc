#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pagoda::base {

void check_failed(const char* file, int line, const std::string& what) {
  fmt::print(stderr, "{}:{}: check failed: {}\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace pagoda::base
