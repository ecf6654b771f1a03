// Any bytes as a configuration file: an error of one line, or options; never more than the reader's
// bounds of time and memory.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<pagoda::Option> table = pagoda::option_table();
  if (size > pagoda::kMaxConfigBytes) return 0;
  pagoda::ServeOptions options;
  const absl::Status status = pagoda::apply_config_text(
      table, {reinterpret_cast<const char*>(data), size}, "c.yaml", options);
  if (!status.ok()) CHECK(pagoda::base::message_of(status).starts_with("c.yaml"));
  return 0;
}
