#include "server/kv_tier_stack.h"

#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

// Threads that copy, check and, without io_uring, wait for the disk.
constexpr int32_t kIoThreads = 4;

cache::SsdWrite ssd_write_of(const std::string& name) {
  if (name == "eager") return cache::SsdWrite::kEager;
  if (name == "reuse") return cache::SsdWrite::kReuse;
  return name == "evict" ? cache::SsdWrite::kEvict : cache::SsdWrite::kAuto;
}

cache::RestorePolicy restore_policy_of(const std::string& name) {
  if (name == "restore") return cache::RestorePolicy::kRestore;
  return name == "recompute" ? cache::RestorePolicy::kRecompute : cache::RestorePolicy::kAuto;
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvTierStack>> KvTierStack::create(const ServeOptions& options,
                                                                 const KvView& kv,
                                                                 const base::Digest256& identity,
                                                                 const base::Clock& clock) {
  std::unique_ptr<KvTierStack> stack(new KvTierStack());
  stack->policies_.ssd_write = ssd_write_of(options.kv_ssd_write);
  stack->policies_.restore_policy = restore_policy_of(options.kv_restore_policy);
  stack->queue_ = base::make_io_queue(kIoThreads, /*allow_uring=*/true);
  if (options.kv_host_size > 0) {
    cache::HostTierOptions host;
    host.capacity_bytes = options.kv_host_size;
    host.block_bytes = kv.block_bytes();
    host.numa_node = options.kv_host_numa_node;
    ASSIGN_OR_RETURN(stack->host_, cache::HostTier::create(host, *stack->queue_));
  }
  if (!options.kv_ssd_path.empty()) {
    ASSIGN_OR_RETURN(stack->disk_, base::PosixDisk::open_folder(options.kv_ssd_path));
    cache::SsdTierOptions ssd;
    ssd.capacity_bytes = options.kv_ssd_size;
    ssd.daily_bytes = options.kv_ssd_daily_bytes;
    ssd.read_limit_bytes_s = options.kv_ssd_read_limit;
    ssd.block_bytes = kv.block_bytes();
    ssd.block_size = kv.block_size;
    ssd.identity = identity;
    ssd.folder = options.kv_ssd_path;
    ASSIGN_OR_RETURN(stack->ssd_, cache::SsdTier::open(ssd, *stack->disk_, *stack->queue_, clock));
  }
  KvTierStack* const self = stack.get();
  stack->transfer_ = std::make_unique<cache::TransferEngine>(
      cache::TransferOptions{}, cache::DeviceMemory{kv.base, kv.block_bytes()}, stack->host_.get(),
      stack->ssd_.get(), clock,
      [self] {
        std::lock_guard lock(self->mutex_);
        if (self->engine_ != nullptr) self->engine_->wake();
      },
      stack->queue_.get());
  return stack;
}

KvTierStack::~KvTierStack() = default;

cache::KvTiers KvTierStack::tiers() const {
  cache::KvTiers tiers = policies_;
  tiers.transfer = transfer_.get();
  tiers.host = host_.get();
  tiers.ssd = ssd_.get();
  return tiers;
}

void KvTierStack::set_engine(engine::Engine* engine) {
  std::lock_guard lock(mutex_);
  engine_ = engine;
}

}  // namespace pagoda
