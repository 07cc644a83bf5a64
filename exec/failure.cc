#include "exec/failure.h"

namespace foreshard::exec {

void FailureFlag::Raise(const Status& cause) {
  const std::scoped_lock lock(mutex_);
  if (cause_.ok()) cause_ = cause;
  raised_.store(true, std::memory_order_release);
}

Status FailureFlag::Cause() const {
  const std::scoped_lock lock(mutex_);
  return cause_;
}

}  // namespace foreshard::exec
