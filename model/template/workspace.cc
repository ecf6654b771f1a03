#include "model/template/workspace.h"

namespace pagoda::model::jinja {

namespace {

[[noreturn]] void fail_limit(std::string message) {
  throw TemplateError{.message = std::move(message), .is_limit = true};
}

}  // namespace

std::string_view brief(std::string_view text) {
  constexpr size_t kMaxBytes = 400;
  if (text.size() <= kMaxBytes) return text;
  size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void* Workspace::allocate(size_t n_bytes) {
  check_room(n_bytes);
  n_bytes = (n_bytes + 15) & ~size_t{15};
  if (n_bytes > free_bytes_) {
    const bool has_own_block = n_bytes > kBlockBytes / 4;
    const size_t block_bytes = has_own_block ? n_bytes : kBlockBytes;
    // The array is not cleared: every byte that is handed out gets written first.
    blocks_.push_back(std::unique_ptr<std::byte[]>(new std::byte[block_bytes]));
    if (has_own_block) {
      used_bytes_ += n_bytes;
      return blocks_.back().get();
    }
    free_ = blocks_.back().get();
    free_bytes_ = block_bytes;
  }
  used_bytes_ += n_bytes;
  std::byte* given = free_;
  free_ += n_bytes;
  free_bytes_ -= n_bytes;
  return given;
}

void Workspace::check_room(size_t n_bytes) const {
  if (n_bytes > limits_.max_bytes || used_bytes_ > limits_.max_bytes - n_bytes) {
    fail_limit(message("needs more than {} bytes of memory", limits_.max_bytes));
  }
}

void Workspace::fail_steps() const {
  fail_limit(message("needs more than {} steps", limits_.max_steps));
}

void Workspace::fail_depth() const {
  fail_limit(message("nests too deeply (the limit is {})", limits_.max_depth));
}

void Workspace::fail_stack() const {
  fail_limit(
      message("nests too deeply for the stack (the limit is {} bytes)", limits_.max_stack_bytes));
}

}  // namespace pagoda::model::jinja
