// Lines from the user: edited and remembered on a terminal, plain from a pipe or file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/client/interrupts.h"

namespace pagoda::client {

enum class LineEnd : uint8_t {
  kLine,
  kInterrupted,  // Ctrl-C; what was typed is dropped
  kEnd,          // Ctrl-D on an empty line, or the end of the input
  kTooLong,      // the rest of the line was dropped
};

inline constexpr size_t kMaxLineBytes = 1 << 20;

// Reads stdin. Borrows the interrupts. One thread.
class LineEditor {
 public:
  // is_terminal: edit, with prompts, by libedit.
  LineEditor(Interrupts& interrupts, bool is_terminal);
  ~LineEditor();

  // The next line without its end.
  LineEnd read(const std::string& prompt, std::string& line);
  // For the arrow keys.
  void remember(const std::string& line);

 private:
  struct Terminal;
  LineEnd read_plain(std::string& line);

  Interrupts& interrupts_;
  std::unique_ptr<Terminal> terminal_;  // null without one
};

}  // namespace pagoda::client
