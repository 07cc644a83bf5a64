#include "sim/rank_memory.h"

#include <algorithm>
#include <map>
#include <vector>

#include "proto/base/text.h"
#include "proto/run/host_walk.h"
#include "proto/run/memory_recorder.h"

namespace foreshard::sim {
namespace {

struct Alike {
  int first = 0;
  int count = 0;
};

// Ranks by what they hold more or less of.
std::vector<Alike> Classes(const pb::Plan& plan) {
  std::map<int, std::vector<int64_t>> others;  // by rank: buffer, bytes, buffer, bytes, ...
  for (int b = 0; b < plan.buffers_size(); ++b) {
    for (const pb::RankBytes& row : plan.buffers(b).others()) {
      others[row.rank()].push_back(b);
      others[row.rank()].push_back(row.bytes());
    }
  }
  std::map<std::vector<int64_t>, Alike> classes;
  classes[{}] = {0, plan.mesh().world_size() - static_cast<int>(others.size())};
  for (const auto& [rank, held] : others) {
    Alike& alike = classes.try_emplace(held, Alike{rank, 0}).first->second;
    ++alike.count;
  }
  std::vector<Alike> result;
  for (const auto& [held, alike] : classes) result.push_back(alike);
  std::ranges::sort(result, {}, &Alike::first);
  return result;
}

}  // namespace

void AddRanks(const pb::Plan& plan, run::ReportBuilder& builder) {
  for (const Alike& alike : Classes(plan)) {
    const run::Program program = run::Flatten(plan, alike.first);
    const std::vector<run::ProgramId> steps = run::ProgramsOnce(program);
    run::MemoryRecorder memory(plan, program, static_cast<int32_t>(steps.size()));
    run::WalkHost(program, steps, memory);
    builder.AddRank(alike.first, memory, alike.count);
  }
}

}  // namespace foreshard::sim
