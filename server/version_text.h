// What `pagoda version` prints.
#pragma once

#include <string>

namespace pagoda {

// The program, its kernels, and the libraries it was built with; the first line is "pagoda X.Y.Z".
std::string version_text();

}  // namespace pagoda
