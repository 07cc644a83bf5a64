#include "exec/scoreboard.h"

#include <utility>

namespace foreshard::exec {

void Scoreboard::Put(int step, int rank, RankStep result) {
  const std::scoped_lock lock(mutex_);
  rows_[step][rank] = std::move(result);
  ++counts_[step];
  changed_.notify_all();
}

void Scoreboard::Finish() {
  const std::scoped_lock lock(mutex_);
  --left_;
  changed_.notify_all();
}

std::vector<RankStep> Scoreboard::Get(int step) {
  std::unique_lock lock(mutex_);
  const auto is_complete = [&] { return counts_[step] == static_cast<int>(rows_[step].size()); };
  changed_.wait(lock, [&] { return is_complete() || left_ == 0; });
  return is_complete() ? std::exchange(rows_[step], {}) : std::vector<RankStep>{};
}

}  // namespace foreshard::exec
