// The Backend of the machine's own processor: memory, packed weights and the ops, in the fastest
// instruction set that the machine has. One thread at a time calls it; that thread is worker 0 of
// the compute pool, and every op is done when its call returns.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace pagoda {

struct CpuOptions {
  int32_t n_threads = 0;  // 0: as many as the process may use
  std::string isa = {};   // "portable", "avx2", "avx512-vnni"; empty: the fastest
};

class CpuBackend final : public Backend {
 public:
  // kInvalidArgument for an instruction set that does not exist or that this machine lacks, and for
  // a number of threads out of range.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> create(const CpuOptions& options);

  const Capabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<Buffer> allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<PackedWeight>> pack(std::span<const WeightSource> sources,
                                                     int32_t rank, int32_t world) override;
  Stream stream() override { return {}; }
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  Event record(Stream) override { return {}; }
  void wait(Event) override {}
  const OpTable& ops() const override { return ops_; }

  cpu::ThreadPool& pool() { return pool_; }
  const cpu::Isa& isa() const { return isa_; }

 private:
  CpuBackend(const cpu::Isa& isa, int32_t n_threads);

  const cpu::Isa& isa_;
  cpu::ThreadPool pool_;
  Capabilities capabilities_;
  OpTable ops_;
};

}  // namespace pagoda
