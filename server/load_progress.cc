#include "server/load_progress.h"
#include "base/print.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>

#include "server/client/units.h"

namespace pagoda {
namespace {

constexpr int64_t kQuietUs = 1'500'000;
constexpr int64_t kRedrawUs = 100'000;

class Progress {
 public:
  Progress(const base::Clock& clock, bool is_terminal)
      : clock_(clock), is_terminal_(is_terminal), begin_us_(clock.now_us()) {}

  void report(int64_t done, int64_t total) {
    const int64_t now_us = clock_.now_us();
    if (total <= 0 || now_us - begin_us_ < kQuietUs) return;
    if (!is_terminal_) return log_fifth(done, total);
    if (done >= total) {
      if (drawn_us_ > 0) print("\r\x1b[K");
    } else if (now_us - drawn_us_ >= kRedrawUs) {
      drawn_us_ = now_us;
      const double left_s = static_cast<double>(now_us - begin_us_) * 1e-6 /
                            static_cast<double>(done + 1) * static_cast<double>(total - done);
      print(fmt::format("\rloading {:3} % of {}, {:.0f} s left\x1b[K", done * 100 / total,
                        bytes_text(total), left_s));
    }
  }

 private:
  void log_fifth(int64_t done, int64_t total) {
    const int64_t fifth = done * 5 / total;
    if (fifth <= logged_fifth_) return;
    logged_fifth_ = fifth;
    spdlog::info("loading: {} % of {}", done * 100 / total, bytes_text(total));
  }
  static void print(const std::string& text) { base::print(stderr, text); }

  const base::Clock& clock_;
  const bool is_terminal_;
  const int64_t begin_us_;
  int64_t drawn_us_ = 0;
  int64_t logged_fifth_ = 0;
};

}  // namespace

model::LoadProgress load_progress(const base::Clock& clock, bool is_terminal) {
  return [progress = Progress(clock, is_terminal)](int64_t done, int64_t total) mutable {
    progress.report(done, total);
  };
}

}  // namespace pagoda
