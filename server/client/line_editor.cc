#include "server/client/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

namespace pagoda::client {
namespace {

constexpr int kRemembered = 1000;

// libedit reads characters as the locale has them; ours are UTF-8.
void use_utf8() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
    // Without any such locale only ASCII can be typed.
    (void)std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

}  // namespace

struct LineEditor::Terminal {
  explicit Terminal(Interrupts& interrupts_in) : interrupts(interrupts_in) {
    use_utf8();
    history = history_init();
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kRemembered);
    ::history(history, &event, H_SETUNIQUE, 1);
    editor = el_init("pagoda", stdin, stdout, stderr);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_PROMPT, &Terminal::prompt_of);
    el_set(editor, EL_HIST, ::history, history);
    el_wset(editor, EL_GETCFN, &Terminal::read_character);
  }
  ~Terminal() {
    el_end(editor);
    history_end(history);
  }

  static Terminal* of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<Terminal*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor)->prompt.data(); }

  // Waits for a key or an interrupt, whichever comes first.
  static int read_character(EditLine* editor, wchar_t* out) {
    Terminal& self = *of(editor);
    std::mbstate_t state{};
    while (true) {
      std::array<pollfd, 2> wait = {pollfd{STDIN_FILENO, POLLIN, 0},
                                    pollfd{self.interrupts.fd(), POLLIN, 0}};
      if (::poll(wait.data(), wait.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return -1;
      }
      if (wait[1].revents != 0 && self.interrupts.take()) {
        self.was_interrupted = true;
        errno = EINTR;
        return -1;
      }
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return static_cast<int>(n);
      const size_t length = std::mbrtowc(out, &byte, 1, &state);
      if (length == static_cast<size_t>(-2)) continue;  // the character goes on
      if (length == static_cast<size_t>(-1)) {
        state = {};  // no character; the next byte begins one
        continue;
      }
      return 1;
    }
  }

  LineEnd read(std::string& line) {
    was_interrupted = false;
    el_resize(editor);  // the window may have changed since the last line
    // libedit takes the terminal over only after it showed the prompt; what is typed in between
    // would be read by the old rules, which swallow a Ctrl-D.
    el_set(editor, EL_PREP_TERM, 1);
    int length = 0;
    const char* text = el_gets(editor, &length);
    if (was_interrupted) {
      std::fputs("\n", stdout);
      return LineEnd::kInterrupted;
    }
    if (text == nullptr || length <= 0) {
      std::fputs("\n", stdout);
      return LineEnd::kEnd;
    }
    line.assign(text, static_cast<size_t>(length));
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    if (line.size() <= kMaxLineBytes) return LineEnd::kLine;
    return LineEnd::kTooLong;
  }

  Interrupts& interrupts;
  History* history = nullptr;
  EditLine* editor = nullptr;
  std::string prompt;
  bool was_interrupted = false;
};

LineEditor::LineEditor(Interrupts& interrupts, bool is_terminal) : interrupts_(interrupts) {
  if (is_terminal) terminal_ = std::make_unique<Terminal>(interrupts_);
}
LineEditor::~LineEditor() = default;

LineEnd LineEditor::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (terminal_ == nullptr) return read_plain(line);
  terminal_->prompt = prompt;
  return terminal_->read(line);
}

LineEnd LineEditor::read_plain(std::string& line) {
  bool too_long = false;
  int c = 0;
  while ((c = std::getc(stdin)) != EOF && c != '\n') {
    too_long = too_long || line.size() >= kMaxLineBytes;
    if (!too_long) line += static_cast<char>(c);
  }
  if (line.ends_with('\r')) line.pop_back();
  if (too_long) return LineEnd::kTooLong;
  return c == EOF && line.empty() ? LineEnd::kEnd : LineEnd::kLine;
}

void LineEditor::remember(const std::string& line) {
  if (terminal_ == nullptr || line.empty()) return;
  HistEvent event;
  history(terminal_->history, &event, H_ENTER, line.c_str());
}

}  // namespace pagoda::client
