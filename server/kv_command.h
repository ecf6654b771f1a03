// `pagoda kv inspect|verify|purge DIR`: the folder of an SSD tier that no server has open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cache/ssd_admin.h"
#include "server/command_line.h"

namespace pagoda {

// For people: what lies in the folder and for whom, and what came of reading every record. Each
// fault has a line of its own.
std::string kv_inspect_text(const std::string& folder, const cache::SsdReport& report);
std::string kv_verify_text(const std::string& folder, const cache::SsdReport& report);
// For programs. `verified`: every record was read.
std::string kv_report_json(const std::string& folder, const cache::SsdReport& report,
                           bool verified);

std::string kv_purge_question(const std::string& folder, int64_t n_segments);
// Whether what was typed means yes.
bool is_yes(std::string_view typed);

// Prints to stdout, and asks on a terminal. kAborted: a server has the folder. kDataLoss, when all
// was printed: verify found faults. Other errors name the folder, which is not one of this tier.
absl::Status run_kv(const CommandLine& line);

}  // namespace pagoda
