// The tiers below the device as the options ask for them, with the disk and the threads they use.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/io_queue.h"
#include "base/posix_disk.h"
#include "cache/kv_cache.h"
#include "kernels/kv_view.h"
#include "server/config.h"
#include "server/engine/engine.h"

namespace pagoda {

class KvTierStack {
 public:
  // The pool that `kv` shows must live longer. Errors name the flag.
  static absl::StatusOr<std::unique_ptr<KvTierStack>> create(const ServeOptions& options,
                                                             const KvView& kv,
                                                             const base::Digest256& identity,
                                                             const base::Clock& clock);
  // Waits for what is under way. The cache has gone by then.
  ~KvTierStack();

  cache::KvTiers tiers() const;
  const cache::HostTier* host() const { return host_.get(); }
  const cache::SsdTier* ssd() const { return ssd_.get(); }
  cache::TransferStats transfer_stats() const { return transfer_->stats(); }

  // Whom to wake when a transfer is done; null before it dies.
  void set_engine(engine::Engine* engine);

 private:
  KvTierStack() = default;

  cache::KvTiers policies_;  // the pointers aside
  std::mutex mutex_;
  engine::Engine* engine_ = nullptr;  // guarded by mutex_

  // Destroyed in the opposite order, which is the order of who uses whom.
  std::unique_ptr<base::PosixDisk> disk_;
  std::unique_ptr<base::IoQueue> queue_;
  std::unique_ptr<cache::HostTier> host_;
  std::unique_ptr<cache::SsdTier> ssd_;
  std::unique_ptr<cache::TransferEngine> transfer_;
};

}  // namespace pagoda
