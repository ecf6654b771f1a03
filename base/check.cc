#include "base/check.h"
#include "base/print.h"

#include <cstdio>
#include <cstdlib>

namespace pagoda::base {

void check_failed(const char* file, int line, const std::string& what) {
  print(stderr, fmt::format("{}:{}: check failed: {}\n", file, line, what));
  std::abort();
}

}  // namespace pagoda::base
