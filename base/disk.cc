#include "base/disk.h"

#include <cstdlib>

#include "base/check.h"

namespace pagoda::base {

DiskBuffer::DiskBuffer(int64_t bytes) : bytes_(disk_align_up(bytes)) {
  if (bytes_ == 0) return;
  data_.reset(static_cast<uint8_t*>(
      std::aligned_alloc(static_cast<size_t>(kDiskAlign), static_cast<size_t>(bytes_))));
  CHECK(data_ != nullptr);
}

void DiskBuffer::Free::operator()(uint8_t* data) const { std::free(data); }

bool is_disk_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != "lock" &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

void check_disk_aligned(int64_t offset, std::span<const uint8_t> bytes) {
  CHECK_GE(offset, 0);
  CHECK_EQ(offset % kDiskAlign, 0);
  CHECK_EQ(bytes.size() % static_cast<size_t>(kDiskAlign), 0u);
  CHECK_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % static_cast<uintptr_t>(kDiskAlign), 0u);
}

}  // namespace pagoda::base
