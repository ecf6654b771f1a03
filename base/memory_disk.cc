#include "base/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "base/blocking.h"
#include "base/check.h"

namespace pagoda::base {
namespace {

constexpr size_t kUnit = static_cast<size_t>(kDiskAlign);
constexpr size_t kTearBorder = 512;
constexpr uint64_t kTearOneOf = 8;  // units that survive a crash

size_t units_up(size_t bytes) { return (bytes + kUnit - 1) / kUnit; }

// A file's content, whatever names it has.
struct Content {
  std::vector<uint8_t> bytes;
  // The units that were written since the last sync, as they were then; shorter than a unit where
  // the file ended.
  std::map<size_t, std::vector<uint8_t>> unsynced;
  size_t synced_size = 0;

  int64_t size() const { return static_cast<int64_t>(bytes.size()); }

  void write(size_t offset, std::span<const uint8_t> from) {
    if (from.empty()) return;
    for (size_t unit = offset / kUnit; unit < units_up(offset + from.size()); ++unit) {
      const size_t begin = std::min(unit * kUnit, synced_size);
      const size_t end = std::min(begin + kUnit, synced_size);
      // Until its first write a unit is as it was at the sync.
      if (!unsynced.contains(unit)) unsynced.emplace(unit, copy(begin, end));
    }
    if (bytes.size() < offset + from.size()) bytes.resize(offset + from.size());
    std::memcpy(bytes.data() + offset, from.data(), from.size());
  }

  void sync() {
    unsynced.clear();
    synced_size = bytes.size();
  }

  void crash(std::mt19937_64& random) {
    size_t size = synced_size;
    for (auto& [unit, old] : unsynced) {
      const size_t begin = unit * kUnit;
      const size_t end = std::min(begin + kUnit, bytes.size());
      size_t kept = end - begin;
      if (random() % 2 == 0) {
        kept = 0;
      } else if (random() % kTearOneOf == 0) {
        kept = std::min(kept, kTearBorder * (1 + random() % (kUnit / kTearBorder - 1)));
      }
      if (kept > 0) size = std::max(size, end);
      old.resize(end - begin);
      std::copy(old.begin() + static_cast<int64_t>(kept), old.end(),
                bytes.begin() + static_cast<int64_t>(begin + kept));
    }
    if (random() % 2 == 0) bytes.resize(size);
    sync();
  }

  void cut(size_t n) {
    bytes.resize(std::min(n, bytes.size()));
    synced_size = std::min(synced_size, bytes.size());
    unsynced.erase(unsynced.lower_bound(units_up(bytes.size())), unsynced.end());
  }

 private:
  std::vector<uint8_t> copy(size_t begin, size_t end) const {
    return {bytes.begin() + static_cast<int64_t>(begin), bytes.begin() + static_cast<int64_t>(end)};
  }
};

absl::Status not_found(const std::string& name) {
  return status_error(absl::StatusCode::kNotFound, "{}: no such file", name);
}

}  // namespace

struct MemoryDisk::State {
  // What a name stood for since the last sync_folder(), the newest last; null: there was no file.
  using History = std::vector<std::shared_ptr<Content>>;

  std::mutex mutex;
  std::map<std::string, History> names;
  int64_t capacity = std::numeric_limits<int64_t>::max();
  uint64_t n_crashes = 0;
  Fail fail;
  Hook hook;

  std::shared_ptr<Content> find(const std::string& name) const {
    const auto it = names.find(name);
    return it == names.end() ? nullptr : it->second.back();
  }

  int64_t free_bytes() const {
    int64_t used = 0;
    for (const auto& [name, history] : names) {
      if (history.back() != nullptr) used += history.back()->size();
    }
    return std::max<int64_t>(0, capacity - used);
  }

  // Makes the last state the only one.
  void settle_names() {
    std::erase_if(names, [](const auto& entry) { return entry.second.back() == nullptr; });
    for (auto& [name, history] : names) history.erase(history.begin(), history.end() - 1);
  }
};

class MemoryDisk::File final : public DiskFile {
 public:
  // The caller holds the state's mutex.
  File(std::shared_ptr<State> state, std::string name, std::shared_ptr<Content> content)
      : state_(std::move(state)),
        name_(std::move(name)),
        content_(std::move(content)),
        n_crashes_(state_->n_crashes) {}

  absl::Status read(int64_t offset, std::span<uint8_t> into) override {
    check_disk_aligned(offset, into);
    RETURN_IF_ERROR(before(DiskOp::kRead, offset));
    std::lock_guard lock(state_->mutex);
    RETURN_IF_ERROR(alive());
    const int64_t end = offset + static_cast<int64_t>(into.size());
    if (end > content_->size()) {
      return status_error(absl::StatusCode::kOutOfRange, "{}: ends before byte {}", name_, end);
    }
    std::copy_n(content_->bytes.begin() + offset, into.size(), into.begin());
    return absl::OkStatus();
  }

  absl::Status write(int64_t offset, std::span<const uint8_t> bytes) override {
    check_disk_aligned(offset, bytes);
    const absl::Status fault = before(DiskOp::kWrite, offset);
    std::lock_guard lock(state_->mutex);
    RETURN_IF_ERROR(alive());
    const int64_t growth = offset + static_cast<int64_t>(bytes.size()) - content_->size();
    const int64_t lacking = disk_align_up(std::max<int64_t>(0, growth - state_->free_bytes()));
    size_t fitting = bytes.size() - std::min(bytes.size(), static_cast<size_t>(lacking));
    if (!fault.ok()) fitting = std::min(fitting, bytes.size() / kUnit / 2 * kUnit);
    content_->write(static_cast<size_t>(offset), bytes.first(fitting));
    RETURN_IF_ERROR(fault);
    if (fitting < bytes.size()) {
      return status_error(absl::StatusCode::kResourceExhausted, "{}: the disk is full", name_);
    }
    return absl::OkStatus();
  }

  absl::Status sync() override {
    RETURN_IF_ERROR(before(DiskOp::kSync, 0));
    std::lock_guard lock(state_->mutex);
    RETURN_IF_ERROR(alive());
    content_->sync();
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> size() override {
    std::lock_guard lock(state_->mutex);
    RETURN_IF_ERROR(alive());
    return content_->size();
  }

  int descriptor() const override { return -1; }

 private:
  absl::Status before(DiskOp op, int64_t offset) {
    note_wait();
    Fail fail;
    Hook hook;
    {
      std::lock_guard lock(state_->mutex);
      RETURN_IF_ERROR(alive());
      fail = state_->fail;
      hook = state_->hook;
    }
    if (hook) hook(op, name_, offset);
    return fail ? fail(op, name_, offset) : absl::OkStatus();
  }

  absl::Status alive() const {
    if (n_crashes_ == state_->n_crashes) return absl::OkStatus();
    return status_error(absl::StatusCode::kUnavailable, "{}: the power failed", name_);
  }

  const std::shared_ptr<State> state_;
  const std::string name_;
  const std::shared_ptr<Content> content_;  // guarded by the state's mutex
  const uint64_t n_crashes_;                // of the disk, when this was opened
};

MemoryDisk::MemoryDisk() : state_(std::make_shared<State>()) {}

absl::StatusOr<std::vector<std::string>> MemoryDisk::list() {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> all;
  for (const auto& [name, history] : state_->names) {
    if (history.back() != nullptr) all.push_back(name);
  }
  return all;
}

absl::StatusOr<std::shared_ptr<DiskFile>> MemoryDisk::create(const std::string& name) {
  CHECK(is_disk_name(name));
  std::lock_guard lock(state_->mutex);
  if (state_->find(name) != nullptr) {
    return status_error(absl::StatusCode::kAlreadyExists, "{}: there is such a file", name);
  }
  State::History& history = state_->names[name];
  if (history.empty()) history.push_back(nullptr);
  history.push_back(std::make_shared<Content>());
  return std::make_shared<File>(state_, name, history.back());
}

absl::StatusOr<std::shared_ptr<DiskFile>> MemoryDisk::open(const std::string& name) {
  CHECK(is_disk_name(name));
  std::lock_guard lock(state_->mutex);
  std::shared_ptr<Content> content = state_->find(name);
  if (content == nullptr) return not_found(name);
  return std::make_shared<File>(state_, name, std::move(content));
}

absl::Status MemoryDisk::remove(const std::string& name) {
  CHECK(is_disk_name(name));
  std::lock_guard lock(state_->mutex);
  if (state_->find(name) == nullptr) return not_found(name);
  state_->names[name].push_back(nullptr);
  return absl::OkStatus();
}

absl::Status MemoryDisk::sync_folder() {
  std::lock_guard lock(state_->mutex);
  state_->settle_names();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MemoryDisk::free_bytes() {
  std::lock_guard lock(state_->mutex);
  return state_->free_bytes();
}

void MemoryDisk::crash(uint64_t seed) {
  std::lock_guard lock(state_->mutex);
  std::mt19937_64 random(seed);
  ++state_->n_crashes;
  for (auto& [name, history] : state_->names) {
    history.push_back(history[random() % history.size()]);
  }
  state_->settle_names();
  for (auto& [name, history] : state_->names) history.back()->crash(random);
}

void MemoryDisk::set_capacity(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->capacity = bytes;
}

void MemoryDisk::set_fail(Fail fail) {
  std::lock_guard lock(state_->mutex);
  state_->fail = std::move(fail);
}

void MemoryDisk::set_hook(Hook hook) {
  std::lock_guard lock(state_->mutex);
  state_->hook = std::move(hook);
}

void MemoryDisk::flip_bit(const std::string& name, int64_t offset) {
  std::lock_guard lock(state_->mutex);
  const std::shared_ptr<Content> content = state_->find(name);
  CHECK(content != nullptr);
  CHECK_LT(offset, content->size());
  content->bytes[static_cast<size_t>(offset)] ^= 1;
}

void MemoryDisk::truncate(const std::string& name, int64_t n) {
  std::lock_guard lock(state_->mutex);
  const std::shared_ptr<Content> content = state_->find(name);
  CHECK(content != nullptr);
  CHECK_GE(n, 0);
  content->cut(static_cast<size_t>(n));
}

}  // namespace pagoda::base
