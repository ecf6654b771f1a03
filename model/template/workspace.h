// What one compile or one render may use: memory, steps and stack, and the error that ends it.
//
// Everything that a template makes lies in the workspace's memory and is freed with it, so values
// are plain pointers, cycles cost nothing and no destructor recurses. One thread.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pagoda::model::jinja {

// The only exception in this folder; ChatTemplate turns it into a Status.
struct TemplateError {
  std::string message;
  int32_t line = 0;         // 0: not yet known
  bool is_refusal = false;  // raise_exception: the message is the template's
  bool is_limit = false;    // nothing may go on after it
};

// What a message quotes, cut to a length that a message may have.
std::string_view brief(std::string_view text);
template <typename T>
decltype(auto) brief_argument(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return brief(value);
  } else {
    return (value);
  }
}

// The words of an error. However long the arguments are, it is short and made quickly.
template <typename... Args>
std::string message(fmt::format_string<Args...> format, Args&&... args) {
  const auto print = [&](const auto&... cut) {
    return fmt::vformat(format, fmt::make_format_args(cut...));
  };
  return print(brief_argument(args)...);
}
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{message<Args...>(format, std::forward<Args>(args)...)};
}
template <typename... Args>
[[noreturn]] void fail_at(int32_t line, fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{message<Args...>(format, std::forward<Args>(args)...), line};
}

class Workspace {
 public:
  struct Limits {
    size_t max_bytes = 0;
    int64_t max_steps = 0;
    int32_t max_depth = 0;
    size_t max_stack_bytes = 0;
  };

  explicit Workspace(const Limits& limits) : limits_(limits) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Memory that lives as long as the workspace; at least `n_bytes`, aligned for any value.
  void* allocate(size_t n_bytes);
  // Whether a piece of so many bytes could still be had; an error if not.
  void check_room(size_t n_bytes) const;
  // Memory outside that counts as long as it lives (Charged, below).
  void charge(size_t n_bytes) {
    check_room(n_bytes);
    used_bytes_ += n_bytes;
  }
  void discharge(size_t n_bytes) { used_bytes_ -= n_bytes; }

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }
  template <typename T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (items.empty()) return {};
    T* to = static_cast<T*>(allocate(items.size_bytes()));
    std::memcpy(static_cast<void*>(to), items.data(), items.size_bytes());
    return {to, items.size()};
  }
  template <typename T, typename Allocator>
  std::span<T> copy(const std::vector<T, Allocator>& items) {
    return copy(std::span<const T>(items));
  }
  std::string_view copy(std::string_view text) {
    const std::span<char> copied = copy(std::span<const char>(text.data(), text.size()));
    return {copied.data(), copied.size()};
  }

  // Counts work, so that no template runs for long.
  void tick(int64_t n_steps = 1) {
    n_steps_ += n_steps;
    if (n_steps_ > limits_.max_steps) [[unlikely]]
      fail_steps();
  }
  // One step for each 64 bytes, however small the pieces.
  void tick_bytes(size_t n_bytes) {
    n_loose_bytes_ += n_bytes;
    if (n_loose_bytes_ < 64) return;
    tick(static_cast<int64_t>(n_loose_bytes_ / 64));
    n_loose_bytes_ %= 64;
  }

  // To be called wherever the native stack grows with the template or its data. The first call
  // from outside, enter_thread, says where the stack stands.
  void enter_thread() { stack_base_ = stack_here(); }
  void check_stack() const {
    if (stack_base_ - stack_here() > limits_.max_stack_bytes) [[unlikely]]
      fail_stack();
  }
  int32_t max_depth() const { return limits_.max_depth; }
  [[noreturn]] void fail_depth() const;

  int64_t now_unix_s = 0;  // what strftime_now tells

 private:
  static constexpr size_t kBlockBytes = size_t{64} << 10;

  // The stack grows downwards on every machine this runs on.
  static uintptr_t stack_here() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_stack() const;

  Limits limits_;
  int64_t n_steps_ = 0;
  size_t n_loose_bytes_ = 0;  // looked at and not yet counted
  size_t used_bytes_ = 0;
  std::byte* free_ = nullptr;
  size_t free_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  uintptr_t stack_base_ = 0;
};

// Allocates for containers of the standard library what counts as the workspace's memory while it
// lives: whatever is put together before it is copied in.
template <typename T>
class Charged {
 public:
  using value_type = T;

  Charged(Workspace& workspace) : workspace_(&workspace) {}  // NOLINT: containers take it so
  template <typename U>
  Charged(const Charged<U>& other) : workspace_(&other.workspace()) {}  // NOLINT: the same

  T* allocate(size_t n) {
    workspace_->charge(n * sizeof(T));
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* items, size_t n) {
    std::allocator<T>().deallocate(items, n);
    workspace_->discharge(n * sizeof(T));
  }
  Workspace& workspace() const { return *workspace_; }
  bool operator==(const Charged&) const = default;

 private:
  Workspace* workspace_;
};
template <typename T>
using Temporary = std::vector<T, Charged<T>>;

// One more call of a macro or of a recursive loop inside the others.
class CallDepth {
 public:
  CallDepth(const Workspace& workspace, int32_t& depth) : depth_(depth) {
    if (depth_ >= workspace.max_depth()) workspace.fail_depth();
    ++depth_;
  }
  ~CallDepth() { --depth_; }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;

 private:
  int32_t& depth_;
};

}  // namespace pagoda::model::jinja
