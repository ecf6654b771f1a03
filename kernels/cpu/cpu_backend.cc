#include "kernels/cpu/cpu_backend.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/sample.h"

namespace pagoda {
namespace cpu {
namespace {

#if defined(PAGODA_X86_KERNELS)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::span<const Isa* const> usable_isas() {
#if defined(PAGODA_X86_KERNELS)
  static const std::array<const Isa*, 3> all = {&isa_portable(), &isa_avx2(), &isa_avx512()};
  static const size_t n = !has_avx2() ? 1 : !has_avx512() ? 2 : 3;
#else
  static const std::array<const Isa*, 1> all = {&isa_portable()};
  static const size_t n = all.size();
#endif
  return std::span(all).first(n);
}

}  // namespace cpu

namespace {

// Far more than a machine has cores; a larger number is a mistake in a configuration.
constexpr int32_t kThreadsMax = 1024;
// Rows of an embedding that are worth a piece of work of their own.
constexpr int64_t kEmbedChunk = 8;

CpuBackend& cpu_of(Backend& backend) { return static_cast<CpuBackend&>(backend); }

void embed(Backend& backend, const ops::Embed& args) {
  const auto& weight = static_cast<const cpu::CpuWeight&>(*args.weight);
  const int64_t dim = weight.k();
  cpu_of(backend).pool().parallel_for(args.n_rows, kEmbedChunk,
                                      [&](int64_t begin, int64_t end, int32_t) {
                                        for (int64_t r = begin; r < end; ++r)
                                          weight.unpack_row(args.ids[r], args.out + r * dim);
                                      });
}
void rms_norm(Backend& backend, const ops::RmsNorm& args) {
  cpu_of(backend).isa().rms_norm(cpu_of(backend).pool(), args);
}
void matmul(Backend& backend, const ops::Matmul& args) {
  CHECK(args.y_type == DType::kF32);
  cpu_of(backend).isa().matmul(cpu_of(backend).pool(), args);
}
void silu_mul(Backend& backend, const ops::SiluMul& args) {
  cpu_of(backend).isa().silu_mul(cpu_of(backend).pool(), args);
}
void rope_angles(Backend& backend, const ops::RopeAngles& args) {
  cpu_of(backend).isa().rope_angles(cpu_of(backend).pool(), args);
}
void rope_kv_write(Backend& backend, const ops::RopeKvWrite& args) {
  cpu_of(backend).isa().rope_kv_write(cpu_of(backend).pool(), args);
}
void attention(Backend& backend, const ops::Attention& args) {
  cpu_of(backend).isa().attention(cpu_of(backend).pool(), args);
}
void gather_rows(Backend& backend, const ops::GatherRows& args) {
  cpu_of(backend).isa().gather_rows(cpu_of(backend).pool(), args);
}
void sample(Backend& backend, const ops::Sample& args) {
  cpu::run_sample(cpu_of(backend).pool(), cpu_of(backend).isa(), args);
}

}  // namespace

CpuBackend::CpuBackend(const cpu::Isa& isa, int32_t n_threads) : isa_(isa), pool_(n_threads) {
  capabilities_ = {.device = "cpu",
                   .kernel_set = isa.name,
                   .page_layout = PageLayout::kKTransposed,
                   .kv_dtype = DType::kF16,
                   .n_threads = n_threads};
  ops_ = {.embed = embed,
          .rms_norm = rms_norm,
          .matmul = matmul,
          .silu_mul = silu_mul,
          .rope_angles = rope_angles,
          .rope_kv_write = rope_kv_write,
          .attention = attention,
          .gather_rows = gather_rows,
          .sample = sample};
}

absl::StatusOr<std::unique_ptr<CpuBackend>> CpuBackend::create(const CpuOptions& options) {
  int32_t n_threads = options.n_threads;
  if (n_threads == 0) {
    n_threads = std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
  }
  if (n_threads < 1 || n_threads > kThreadsMax) {
    return base::invalid_argument("{} threads: must be 1 to {}", options.n_threads, kThreadsMax);
  }
  const std::span<const cpu::Isa* const> isas = cpu::usable_isas();
  const cpu::Isa* isa = isas.back();
  if (!options.isa.empty()) {
    const auto found = std::find_if(isas.begin(), isas.end(), [&](const cpu::Isa* candidate) {
      return candidate->name == options.isa;
    });
    if (found == isas.end()) {
      return base::invalid_argument("no kernels for '{}' that this machine runs; the best is '{}'",
                                    options.isa, isa->name);
    }
    isa = *found;
  }
  return std::unique_ptr<CpuBackend>(new CpuBackend(*isa, n_threads));
}

absl::StatusOr<Buffer> CpuBackend::allocate(size_t bytes) { return cpu::map_memory(bytes); }

absl::StatusOr<std::unique_ptr<PackedWeight>> CpuBackend::pack(
    std::span<const WeightSource> sources, int32_t rank, int32_t world) {
  ASSIGN_OR_RETURN(std::unique_ptr<cpu::CpuWeight> weight,
                   cpu::pack_weight(pool_, sources, rank, world));
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

void CpuBackend::copy(void* to, const void* from, size_t bytes, Stream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace pagoda
