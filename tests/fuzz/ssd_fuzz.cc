// A folder of the SSD tier whose bytes were changed: whatever is got is what was put, and nothing
// that the files say ends the process.
//
//   input: 1 byte of mode, then
//     0: edits of the files of a good folder, 5 bytes each: file, offset (3), value
//     1: bytes that take the place of a whole segment file
//     2: a record header with good checksums whose fields are the input's
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/memory_disk.h"
#include "base/pumped_io_queue.h"
#include "cache/ssd_admin.h"
#include "cache/ssd_segment.h"
#include "cache/ssd_tier.h"
#include "tests/unit/cache/ssd_blocks.h"

namespace pagoda::cache {
namespace {

constexpr int32_t kBlocks = 12;

struct Folder {
  base::FakeClock clock;
  base::MemoryDisk disk;
  base::PumpedIoQueue queue;

  std::unique_ptr<SsdTier> open() {
    auto tier = SsdTier::open(test_options(), disk, queue, clock);
    if (!tier.ok()) return nullptr;
    queue.pump_all();
    return *std::move(tier);
  }
  void close(std::unique_ptr<SsdTier> tier) {
    queue.pump_all();
    tier.reset();
  }
  void fill() {
    std::unique_ptr<SsdTier> tier = open();
    CHECK(tier != nullptr);
    for (int32_t id = 0; id < kBlocks; ++id) {
      const std::vector<uint8_t> block = test_block(id);
      tier->put(test_record(id), block, [](const absl::Status& status) { CHECK(status.ok()); });
      queue.pump_all();
    }
    close(std::move(tier));
  }
  void edit(std::span<const uint8_t> edits) {
    const std::vector<std::string> names = *disk.list();
    base::DiskBuffer unit(base::kDiskAlign);
    for (; edits.size() >= 5; edits = edits.subspan(5)) {
      const std::shared_ptr<base::DiskFile> file = *disk.open(names[edits[0] % names.size()]);
      const int64_t size = *file->size() / base::kDiskAlign * base::kDiskAlign;
      if (size == 0) continue;
      const int64_t at = ((edits[1] << 16) | (edits[2] << 8) | edits[3]) % size;
      const int64_t begin = at / base::kDiskAlign * base::kDiskAlign;
      CHECK(file->read(begin, unit.span()).ok());
      unit.span()[static_cast<size_t>(at - begin)] ^= edits[4];
      CHECK(file->write(begin, unit.span()).ok());
    }
  }
  void replace(std::span<const uint8_t> bytes) {
    const std::string name = segment_name(1);
    CHECK(disk.remove(name).ok());
    const std::shared_ptr<base::DiskFile> file = *disk.create(name);
    if (bytes.empty()) return;
    base::DiskBuffer buffer(static_cast<int64_t>(bytes.size()));
    std::ranges::fill(buffer.span(), uint8_t{0});
    std::ranges::copy(bytes, buffer.span().begin());
    CHECK(file->write(0, buffer.span()).ok());
  }
  // A segment whose only record says of itself what the input wants.
  void forge(std::span<const uint8_t> fields) {
    std::vector<uint8_t> bytes(static_cast<size_t>(8 * base::kDiskAlign));
    encode_segment_header({1, 0}, std::span(bytes).first(size_t{base::kDiskAlign}));
    SsdRecord record;
    record.block = test_record(1);
    record.offset = base::kDiskAlign;
    record.data_bytes = kTestBlockBytes;
    const std::span<uint8_t> header =
        std::span(bytes).subspan(size_t{base::kDiskAlign}, size_t{base::kDiskAlign});
    encode_record_header(record, 1, header);
    const size_t n = std::min(fields.size(), header.size() - 24 - sizeof(base::Digest128));
    for (size_t i = 0; i < n; ++i) header[24 + i] ^= fields[i];
    const size_t end = header.size() - sizeof(base::Digest128);
    const base::Digest128 digest = base::xxh3_128(header.first(end));
    std::memcpy(header.data() + end, digest.data(), sizeof digest);
    replace(bytes);
  }
};

void look(Folder& folder) {
  std::unique_ptr<SsdTier> tier = folder.open();
  if (tier == nullptr) return;
  for (const BlockRecord& record : tier->take_found()) CHECK(tier->contains(record.key));
  for (int32_t id = 0; id < kBlocks; ++id) {
    std::vector<uint8_t> into(static_cast<size_t>(kTestBlockBytes));
    tier->get(test_key(id), into, [&](const absl::Status& status) {
      if (status.ok()) CHECK(into == test_block(id));
    });
    folder.queue.pump_all();
  }
  tier->drop(test_key(1));
  tier->drop_salt(test_salt(0));
  folder.close(std::move(tier));
  (void)inspect_ssd(folder.disk, "kv");
  (void)verify_ssd(folder.disk, "kv");
}

}  // namespace
}  // namespace pagoda::cache

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  pagoda::cache::Folder folder;
  folder.fill();
  const std::span<const uint8_t> rest(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      folder.edit(rest);
      break;
    case 1:
      folder.replace(rest);
      break;
    default:
      folder.forge(rest);
  }
  (void)pagoda::cache::inspect_ssd(folder.disk, "kv");
  (void)pagoda::cache::verify_ssd(folder.disk, "kv");
  pagoda::cache::look(folder);
  return 0;
}
