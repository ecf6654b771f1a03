#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <limits>

#include "base/check.h"

namespace pagoda::cpu {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t mapped_bytes(size_t bytes) {
  return round_up(bytes, bytes < 2 * kHugePageBytes ? kPageBytes : kHugePageBytes);
}

void release(void* data, size_t bytes) { munmap(data, mapped_bytes(bytes)); }

// Maps more than is wanted and gives back what lies outside the aligned part.
uint8_t* map_aligned(size_t bytes, size_t alignment) {
  const size_t spare = alignment - kPageBytes;
  void* mapped =
      mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  uint8_t* begin = static_cast<uint8_t*>(mapped);
  const size_t head =
      round_up(reinterpret_cast<uintptr_t>(begin), alignment) - reinterpret_cast<uintptr_t>(begin);
  if (head > 0) munmap(begin, head);
  if (spare > head) munmap(begin + head + bytes, spare - head);
  return begin + head;
}

}  // namespace

absl::StatusOr<Buffer> map_memory(size_t bytes) {
  if (bytes == 0) return Buffer();
  const bool fits = bytes <= std::numeric_limits<size_t>::max() / 2;
  const bool huge = bytes >= 2 * kHugePageBytes;
  uint8_t* data =
      fits ? map_aligned(mapped_bytes(bytes), huge ? kHugePageBytes : kPageBytes) : nullptr;
  if (data == nullptr) {
    return base::status_error(absl::StatusCode::kResourceExhausted,
                              "the system has no {} bytes of memory to give", bytes);
  }
  // Advice: where it is declined the memory is only slower.
  if (huge) madvise(data, mapped_bytes(bytes), MADV_HUGEPAGE);
  return Buffer(data, bytes, release);
}

}  // namespace pagoda::cpu
