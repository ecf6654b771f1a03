// Checks of what the programmer promised, and the two macros that pass a Status on.
//
// A failed CHECK is a fault in Pagoda itself: it prints the condition and both values and ends the
// process, in release builds too. Wrong requests and failing disks are never checked with CHECK;
// they are a Status.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagoda::base {

// Prints "file:line: check failed: what" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

// An absl::Status whose message is made by fmt: status_error(absl::StatusCode::kNotFound, "no {}",
// x).
template <typename... Args>
absl::Status status_error(absl::StatusCode code, fmt::format_string<Args...> format,
                          Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return status_error(absl::StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// Abseil's Debian build has a string_view of its own; this is the border.
inline std::string message_of(const absl::Status& status) {
  return std::string(status.message().data(), status.message().size());
}

}  // namespace pagoda::base

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::pagoda::base::check_failed(__FILE__, __LINE__, #condition); \
  } while (false)

#define PAGODA_CHECK_OP(op, a, b)                                                    \
  do {                                                                               \
    auto&& check_a_ = (a);                                                           \
    auto&& check_b_ = (b);                                                           \
    if (!(check_a_ op check_b_)) [[unlikely]]                                        \
      ::pagoda::base::check_failed(                                                  \
          __FILE__, __LINE__,                                                        \
          fmt::format("{} {} {} ({} against {})", #a, #op, #b, check_a_, check_b_)); \
  } while (false)

#define CHECK_EQ(a, b) PAGODA_CHECK_OP(==, a, b)
#define CHECK_NE(a, b) PAGODA_CHECK_OP(!=, a, b)
#define CHECK_LT(a, b) PAGODA_CHECK_OP(<, a, b)
#define CHECK_LE(a, b) PAGODA_CHECK_OP(<=, a, b)
#define CHECK_GT(a, b) PAGODA_CHECK_OP(>, a, b)
#define CHECK_GE(a, b) PAGODA_CHECK_OP(>=, a, b)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
  } while (false)
#else
#define DCHECK(condition) CHECK(condition)
#endif

#define RETURN_IF_ERROR(expression)                           \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define PAGODA_CONCAT_(a, b) a##b
#define PAGODA_CONCAT(a, b) PAGODA_CONCAT_(a, b)
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(PAGODA_CONCAT(status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(temp, target, expression) \
  auto temp = (expression);                         \
  if (!temp.ok()) return temp.status();             \
  target = std::move(temp).value()
