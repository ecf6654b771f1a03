// `pagoda kv inspect|verify|purge FOLDER`: the folder of an SSD tier while no server has it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cache/ssd_admin.h"
#include "server/command_line.h"

namespace pagoda {

// What lies in a folder, for people and for programs. `verified`: every record was read.
std::string kv_report_text(const std::string& folder, const cache::SsdReport& report,
                           bool verified);
std::string kv_report_json(const std::string& folder, const cache::SsdReport& report,
                           bool verified);

// kDataLoss, when all was printed: something in the folder is wrong. Other errors name the folder:
// it is not one of this tier, or a server has it.
absl::Status run_kv(const CommandLine& line);

}  // namespace pagoda
