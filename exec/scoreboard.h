// Where ranks put what a step came to, and the main thread learns it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace foreshard::exec {

struct RankStep {
  std::vector<double> losses;  // by micro-batch
  double squared_norm = 0;     // of the rank's own part of the gradients
  bool has_norm = false;
};

class Scoreboard {
 public:
  Scoreboard(int ranks, int steps) : left_(ranks), rows_(steps) {
    for (auto& row : rows_) row.resize(ranks);
    counts_.assign(steps, 0);
  }

  void Put(int step, int rank, RankStep result);
  // This rank puts nothing more.
  void Finish();
  // The step's results by rank; empty when a rank has finished without it.
  std::vector<RankStep> Get(int step);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;  // ranks that have not finished
  std::vector<std::vector<RankStep>> rows_;
  std::vector<int> counts_;
};

}  // namespace foreshard::exec
