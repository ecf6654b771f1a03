// Numbers and foreign text as people read them in a terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda {

// "512 B", "22.5 KiB", "5.6 GiB".
std::string bytes_text(int64_t bytes);
// "961", "134.5 M", "7.2 B": parameters and the like.
std::string count_text(int64_t count);

// Text of a model or of another machine without what a terminal would obey: control characters
// other than \n and \t are left out. The text is UTF-8, or its bytes stay as they are.
std::string printable(std::string_view text);

}  // namespace pagoda
