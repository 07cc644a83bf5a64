#include "exec/shard_map.h"

#include <algorithm>

#include "proto/plan.pb.h"

namespace foreshard::exec {

ShardMap::ShardMap(const pb::Plan& plan, int rank)
    : plan_(plan),
      rank_(rank),
      ranks_(plan.mesh().shard_size()),
      shard_rank_(rank % plan.mesh().shard_size()) {}

int64_t ShardMap::numel(int parameter) const {
  int64_t n = 1;
  for (const int64_t d : plan_.parameters(parameter).shape()) n *= d;
  return n;
}

int64_t ShardMap::padded_numel(int parameter) const {
  const pb::Parameter& p = plan_.parameters(parameter);
  const int64_t slices = p.shape(p.shard_dim());
  return (slices + ranks_ - 1) / ranks_ * (numel(parameter) / slices);
}

int64_t ShardMap::local_numel(int parameter) const {
  if (FlatOf(parameter) != nullptr) {
    const int64_t end = BeforeShard(parameter) + FlatShardNumel(plan_.parameters(parameter).unit());
    const int64_t first = std::max<int64_t>(BeforeShard(parameter), 0);
    return std::max<int64_t>(std::min(end, numel(parameter)) - first, 0);
  }
  const int64_t padded = padded_numel(parameter);
  return std::clamp<int64_t>(numel(parameter) - padded * shard_rank_, 0, padded);
}

int64_t ShardMap::local_offset(int parameter) const {
  if (FlatOf(parameter) == nullptr || local_numel(parameter) == 0) return 0;
  return std::max<int64_t>(-BeforeShard(parameter), 0);
}

int64_t ShardMap::buffer_numel(int parameter) const {
  if (FlatOf(parameter) == nullptr) return padded_numel(parameter);
  return FlatShardNumel(plan_.parameters(parameter).unit());
}

ShardMap::Runs ShardMap::LocalRuns(int parameter) const {
  if (FlatOf(parameter) != nullptr) {
    const int64_t numel = local_numel(parameter);
    return {std::max<int64_t>(BeforeShard(parameter), 0), numel, 1, numel};
  }
  const pb::Parameter& p = plan_.parameters(parameter);
  Runs runs;
  for (int i = 0; i < p.shard_dim(); ++i) runs.count *= p.shape(i);
  runs.numel = local_numel(parameter) / runs.count;
  runs.first = shard_rank_ * padded_numel(parameter) / runs.count;
  runs.step = numel(parameter) / runs.count;
  return runs;
}

DType ShardMap::dtype(int parameter) const {
  return static_cast<DType>(plan_.parameters(parameter).dtype());
}

int ShardMap::Member(int group) const {
  const pb::Group& g = plan_.groups(group);
  return rank_ / g.stride() % g.size();
}

bool ShardMap::IsFlat(int unit) const { return plan_.units(unit).has_flat(); }

int64_t ShardMap::FlatShardNumel(int unit) const {
  return (plan_.units(unit).flat().numel() + ranks_ - 1) / ranks_;
}

std::vector<int> ShardMap::Trainable(int unit) const {
  std::vector<int> result;
  for (const int p : plan_.units(unit).parameters()) {
    if (!plan_.parameters(p).frozen()) result.push_back(p);
  }
  return result;
}

std::vector<int> ShardMap::Trainable() const {
  std::vector<int> result;
  for (int p = 0; p < plan_.parameters_size(); ++p) {
    if (!plan_.parameters(p).frozen()) result.push_back(p);
  }
  return result;
}

std::vector<ShardMap::Tensor> ShardMap::Tensors() const {
  std::vector<Tensor> tensors;
  for (int u = 0; u < plan_.units_size(); ++u) {
    if (!IsFlat(u) || plan_.units(u).flat().by_parameter()) continue;
    const std::vector<int> trained = Trainable(u);
    if (!trained.empty()) tensors.push_back({trained[0], 0, FlatShardNumel(u), true});
  }
  for (const int p : Trainable()) {
    const pb::Flat* flat = FlatOf(p);
    if (flat != nullptr && !flat->by_parameter()) continue;
    const int64_t numel = local_numel(p);
    tensors.push_back({p, local_offset(p), numel, false, flat == nullptr || numel > 0});
  }
  return tensors;
}

int64_t ShardMap::SquaredNorms() const {
  const bool is_flat = plan_.units_size() > 0 && IsFlat(0);
  return is_flat && ranks_ > 1 ? 1 : static_cast<int64_t>(Tensors().size());
}

std::vector<ShardMap::Tensor> ShardMap::UpdatedTensors() const {
  std::vector<Tensor> tensors = Tensors();
  for (const pb::Segment& segment : plan_.segments()) {
    for (const pb::Op& op : segment.ops()) {
      const auto& owners = op.optimizer_step().owners();
      for (int i = 0; i < owners.size(); ++i) {
        if (owners[i] == rank_) continue;
        tensors[i].numel = 0;
        tensors[i].has_state = false;
      }
    }
  }
  return tensors;
}

const pb::Flat* ShardMap::FlatOf(int parameter) const {
  const pb::Parameter& p = plan_.parameters(parameter);
  return IsFlat(p.unit()) ? &plan_.units(p.unit()).flat() : nullptr;
}

int64_t ShardMap::BeforeShard(int parameter) const {
  const pb::Parameter& p = plan_.parameters(parameter);
  return shard_rank_ * FlatShardNumel(p.unit()) - p.flat_offset();
}

}  // namespace foreshard::exec
