// Where log lines go and what they look like.
#pragma once

#include <spdlog/common.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pagoda {

enum class LogFormat : uint8_t { kText, kJson };

// Makes the default logger of the process one that writes lines to stderr:
//
//   text   2026-01-31 12:00:00.123 info what happened
//   JSON   {"ts":"2026-01-31T12:00:00.123Z","level":"info","msg":"what happened", …}
//
// A message is one line in either, whatever it contains. A line that can't be written at once,
// because the disk is full, the reader of a pipe is slow or stderr is closed, is dropped and
// counted, and the count is a line of its own once lines can be written again: a log never stops or
// ends the server. Before any thread that logs.
void set_up_logging(const std::string& level, LogFormat format);

// A line with fields of its own. In text it is `text`; in JSON `msg` and the fields, whose names
// are none of ts, level and msg.
void log_event(spdlog::level::level_enum level, const std::string& text, const std::string& msg,
               const nlohmann::ordered_json& fields);

// Lines that could not be written. Any thread.
int64_t n_dropped_log_lines();

// How a line is made of a message; for set_up_logging and tests.
std::unique_ptr<spdlog::formatter> make_log_formatter(LogFormat format);
// A sink that writes to a descriptor and never waits for it. It borrows the descriptor.
std::shared_ptr<spdlog::sinks::sink> make_descriptor_sink(int descriptor);

}  // namespace pagoda
