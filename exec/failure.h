// The first cause that ends a run. Whoever waits for others looks here, so that no rank waits for
// one that will never come.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "proto/base/status.h"

namespace foreshard::exec {

class FailureFlag {
 public:
  // Keeps the first cause and drops later ones, which are its consequences. REQUIRES: not OK.
  void Raise(const Status& cause);
  bool IsRaised() const { return raised_.load(std::memory_order_acquire); }
  // OK while nothing has failed.
  Status Cause() const;

 private:
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;
  Status cause_;
};

}  // namespace foreshard::exec
