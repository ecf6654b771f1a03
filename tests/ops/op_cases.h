// What the op tests share: the backends that every case runs on, and paged KV whose unused slots
// are poison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"
#include "kernels/ref/ref_backend.h"

namespace pagoda::test {

struct BackendCase {
  std::string isa;
  int32_t n_threads = 1;
};

inline void PrintTo(const BackendCase& c, std::ostream* out) {
  *out << c.isa << ", " << c.n_threads << " threads";
}

inline std::unique_ptr<Backend> make_backend(const BackendCase& c) {
  auto backend = CpuBackend::create({.n_threads = c.n_threads, .isa = c.isa});
  CHECK(backend.ok());
  return *std::move(backend);
}

// Every instruction set that this machine runs.
// With a sanitizer the kernels run ten times slower: the large cases are left to the other builds,
// every kind of case stays.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const cpu::Isa* isa : cpu::usable_isas()) names.emplace_back(isa->name);
  return names;
}

inline std::vector<BackendCase> backend_cases() {
  std::vector<BackendCase> cases;
  for (const std::string& isa : isa_names()) {
    for (int32_t n_threads : {1, 3}) cases.push_back({isa, n_threads});
  }
  return cases;
}

inline std::string case_name(const testing::TestParamInfo<BackendCase>& info) {
  std::string name = info.param.isa + "_" + std::to_string(info.param.n_threads);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A test that runs once on each backend.
class OpTest : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override { backend_ = make_backend(GetParam()); }
  std::unique_ptr<Backend> backend_;
  ref::RefBackend reference_;
};

inline std::vector<float> random_floats(std::mt19937_64& random, int64_t n, float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

// The largest |a - b| relative to max(|b|, floor), infinite if either holds a NaN.
inline double worst_error(const std::vector<float>& a, const std::vector<float>& b, double floor) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(double{a[i]} - b[i]) / std::max<double>(std::abs(b[i]), floor);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  return worst;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// A pool of KV blocks in one layout. All bytes are 0xFF, which is a NaN in f16 and in f32, until
// something is written.
class PoisonedKv {
 public:
  PoisonedKv(const KvView& shape, PageLayout layout) : view(shape) {
    view.page_layout = layout;
    memory_.assign(static_cast<size_t>(view.pool_bytes()), 0xFF);
    view.base = memory_.data();
  }
  PoisonedKv(const PoisonedKv&) = delete;
  PoisonedKv& operator=(const PoisonedKv&) = delete;

  void write(ops::KvSlot slot, int32_t layer, int32_t head, const float* k, const float* v) {
    const int32_t token = slot.offset % kPageTokens;
    uint8_t* keys = view.page(slot.block, layer, KvPart::kKey, head, slot.offset);
    uint8_t* values = view.page(slot.block, layer, KvPart::kValue, head, slot.offset);
    for (int32_t d = 0; d < view.head_dim; ++d) {
      ref::write_page(view, keys, KvPart::kKey, token, d, k[d]);
      ref::write_page(view, values, KvPart::kValue, token, d, v[d]);
    }
  }
  float read(ops::KvSlot slot, int32_t layer, KvPart part, int32_t head, int32_t d) const {
    return ref::read_page(view, view.page(slot.block, layer, part, head, slot.offset), part,
                          slot.offset % kPageTokens, d);
  }
  const std::vector<uint8_t>& bytes() const { return memory_; }

  KvView view;

 private:
  std::vector<uint8_t> memory_;
};

// Gives out the blocks of a pool in random order; a third of them stays unused.
class ShuffledBlocks {
 public:
  ShuffledBlocks(int32_t n_blocks, std::mt19937_64& random)
      : order_(static_cast<size_t>(n_blocks)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random);
  }
  std::vector<BlockId> take(int32_t n) {
    std::vector<BlockId> blocks;
    for (; n > 0; --n) blocks.emplace_back(order_.at(next_++));
    return blocks;
  }

 private:
  std::vector<int32_t> order_;
  size_t next_ = 0;
};

inline int32_t blocks_for(int32_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

inline ops::KvSlot slot_of(const std::vector<BlockId>& blocks, int32_t token, int32_t block_size) {
  return {blocks[static_cast<size_t>(token / block_size)], token % block_size};
}

}  // namespace pagoda::test
