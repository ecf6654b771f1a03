#include "model/template/workspace.h"

namespace pagoda::model::jinja {

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
    fail("needs more than {} bytes of memory", limits_.max_bytes);
  }
}

void Workspace::fail_steps() const { fail("needs more than {} steps", limits_.max_steps); }

void Workspace::fail_depth() const {
  fail("nests too deeply (the limit is {})", limits_.max_depth);
}

}  // namespace pagoda::model::jinja
