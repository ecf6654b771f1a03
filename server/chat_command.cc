#include "server/chat_command.h"

#include <memory>

#include "base/check.h"
#include "server/app.h"
#include "server/client/chat.h"
#include "server/client/url.h"
#include "server/logging.h"

namespace pagoda {

absl::Status run_chat(const CommandLine& line, const GetEnvironment& environment) {
  if (line.options.model.empty()) {
    ASSIGN_OR_RETURN(const client::Url url, client::parse_url(line.chat.target));
    return client::run_chat(line.chat, url);
  }
  set_up_logging("warn", LogFormat::kText);
  ServeOptions options = line.options;
  options.max_num_seqs = 1;
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalServer> server,
                   LocalServer::start(options, environment));
  return client::run_chat(line.chat, {.host = "127.0.0.1", .port = server->port(), .path = ""});
}

}  // namespace pagoda
