#include "server/version_text.h"

#include <absl/base/config.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <spdlog/version.h>

#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/isa.h"
#include "server/config.h"

namespace pagoda {

std::string version_text() {
  std::vector<std::string_view> kernels;
  for (const cpu::Isa* isa : cpu::usable_isas()) kernels.push_back(isa->name);
  return fmt::format(
      "pagoda {}\n"
      "kernels    {} (those this machine runs; {} is taken)\n"
      "compiler   {}\n"
      "libraries  Abseil {}, Boost {}.{}, CLI11 {}, fmt {}.{}, nlohmann_json {}.{}, OpenSSL {},\n"
      "           spdlog {}.{}\n",
      version(), fmt::join(kernels, ", "), kernels.back(), __VERSION__, ABSL_LTS_RELEASE_VERSION,
      BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1000, CLI11_VERSION, FMT_VERSION / 10'000,
      FMT_VERSION / 100 % 100, NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
      OpenSSL_version(OPENSSL_VERSION_STRING), SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR);
}

}  // namespace pagoda
