// A Backend is a place where tensors live and ops run: memory, streams, copies, capabilities, the
// packing of weights, and a table with one function per op. Callers use the functions of ops.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "kernels/kv_view.h"

namespace pagoda {

struct OpTable;

// One tensor as a model file has it; the bytes stay the caller's and are read only inside pack().
struct WeightSource {
  const uint8_t* data = nullptr;  // [n, k] row-major in the file's block format
  DType type = DType::kF32;
  int64_t n = 0;  // rows, outputs
  int64_t k = 0;  // columns, inputs; a multiple of the type's block_len
};

// A matrix in the form that its backend multiplies fastest. Several tensors of the same k may be
// stacked into one (q, k and v), each in its own type. Opaque: only the backend that packed it can
// read it. Immutable, so any thread may read.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t n() const = 0;
  virtual int64_t k() const = 0;
  virtual int64_t bytes() const = 0;
};

// Owns backend memory; 64-byte aligned, zeroed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t bytes, void (*release)(void*, size_t))
      : data_(data), bytes_(bytes), release_(release) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
  }
  void reset() {
    if (data_ != nullptr) release_(data_, bytes_);
    data_ = nullptr;
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  void (*release_)(void*, size_t) = nullptr;
};

// An ordered queue of work. On a CPU every op is done when its call returns.
struct Stream {
  void* handle = nullptr;
};
// A moment in a stream. On a CPU every event has passed.
struct Event {
  void* handle = nullptr;
};

struct Capabilities {
  std::string_view device;      // "cpu", "cuda"
  std::string_view kernel_set;  // "portable", "avx2", "avx512-vnni"; part of a block's identity
  PageLayout page_layout = PageLayout::kTokenMajor;
  DType kv_dtype = DType::kF16;
  // Of what flows between ops beside the residual stream and logits, which are f32.
  DType activation = DType::kF32;
  int32_t n_threads = 1;
};

// Ops of one Backend are called by one thread at a time (on the CPU the engine thread, which is
// worker 0 of the compute pool). allocate and pack may be called before that thread starts.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const Capabilities& capabilities() const = 0;

  // kResourceExhausted when there is no such memory. The pages are untouched: the first write pays.
  virtual absl::StatusOr<Buffer> allocate(size_t bytes) = 0;
  // Stacks the sources by rows and keeps the part of `rank` out of `world` (tensor parallel; 0 of 1
  // keeps all). kInvalidArgument when the k differ.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> pack(std::span<const WeightSource> sources,
                                                             int32_t rank, int32_t world) = 0;

  virtual Stream stream() = 0;
  virtual void copy(void* to, const void* from, size_t bytes, Stream stream) = 0;
  virtual Event record(Stream stream) = 0;
  virtual void wait(Event event) = 0;  // blocks the calling thread until the event has passed

  virtual const OpTable& ops() const = 0;
};

}  // namespace pagoda
