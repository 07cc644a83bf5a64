#include "tests/testing/one_rank_reduction.h"

#include <cmath>
#include <utility>

#include "exec/convert.h"

namespace foreshard {
namespace {

void Round(std::vector<float>& values, DType dtype) {
  const auto numel = static_cast<int64_t>(values.size());
  std::vector<std::byte> stored(values.size() * SizeOf(dtype));
  exec::ConvertElements(values.data(), DType::kFp32, stored.data(), dtype, numel);
  exec::ConvertElements(stored.data(), dtype, values.data(), DType::kFp32, numel);
}

void Divide(std::vector<float>& values, float divisor, DType dtype) {
  if (divisor == 1) return;
  for (float& x : values) x /= divisor;
  Round(values, dtype);
}

// What was kept, with what is new; only the latter if nothing was.
std::vector<float> Accumulate(std::vector<float> kept, std::vector<float> added, DType dtype) {
  if (kept.empty()) return added;
  for (size_t i = 0; i < kept.size(); ++i) kept[i] += added[i];
  Round(kept, dtype);
  return kept;
}

// About the square root before and the rest after, so that neither sum nor parts leave fp16.
void DivideAroundSum(double factor, ReductionRules& rules) {
  double before = 1;
  while (std::fmod(factor, before) == 0 && factor / before > before) before *= 2;
  rules.divisor_before = static_cast<float>(before);
  rules.divisor_after = static_cast<float>(factor / before);
}

// Of all strategies that keep parameters flat: sums, in every dtype; gradients that wait to be
// reduced are added up as autograd makes them.
ReductionRules FlatRulesOf(const PlanRequest& request, DType reduce) {
  ReductionRules rules;
  // One rank has nobody to share with.
  const bool shards = request.strategy != "no_shard" && request.world_size > 1;
  rules.replicas = shards ? request.replicate_size : request.world_size;
  rules.shards = request.world_size / rules.replicas;
  rules.micro_batches = request.micro_batches.count;
  rules.reduce_in_last_only = !request.micro_batches.reduce;
  rules.adds_as_made = true;
  rules.adds_to_reduced = !shards;
  rules.is_mean_of_shards = false;
  rules.is_mean_of_replicas = false;
  DivideAroundSum(request.world_size, rules);
  rules.reduce = reduce;
  rules.original = request.original_dtype;
  return rules;
}

// Without shards: gradients times 1 / ranks are added up, all in the parameters' dtype. What a step
// has reduced before is a part of what it reduces next.
ReductionRules ReplicatedRulesOf(const PlanRequest& request) {
  ReductionRules rules;
  rules.replicas = request.world_size;
  rules.micro_batches = request.micro_batches.count;
  rules.reduce_in_last_only = !request.micro_batches.reduce;
  rules.adds_as_made = true;
  rules.adds_to_reduced = true;
  rules.is_mean_of_shards = rules.is_mean_of_replicas = false;
  rules.factor = static_cast<float>(1.0 / request.world_size);
  rules.reduce = rules.original = request.original_dtype;
  return rules;
}

}  // namespace

ReductionRules RulesOf(const PlanRequest& request, DType reduce) {
  if (request.strategy == "ddp" || request.strategy == "zero1") return ReplicatedRulesOf(request);
  if (request.strategy != "fsdp2") return FlatRulesOf(request, reduce);
  ReductionRules rules;
  rules.replicas = request.replicate_size;
  rules.shards = request.world_size / request.replicate_size;
  rules.micro_batches = request.micro_batches.count;
  rules.reduce_in_last_only = !request.micro_batches.reduce;
  rules.all_reduce_in_last_only = !request.micro_batches.all_reduce;
  // The latest version leaves them to autograd and only asks it for a larger type.
  rules.adds_as_made =
      request.torch == "2.15" &&
      SizeOf(reduce) <= SizeOf(request.param_dtype.value_or(request.original_dtype));
  rules.reduce = reduce;
  rules.original = request.original_dtype;
  const std::optional<double>& asked = request.gradient_divide_factor;
  const bool overflows = reduce == DType::kFp16;
  if (!overflows && !request.force_sum_reduction && !asked) return rules;
  rules.is_mean_of_replicas = false;
  rules.is_mean_of_shards = false;
  const double factor = asked.value_or(request.world_size);
  // Since 2.14 a shard group of one rank copies and divides where others reduce.
  const bool copies = rules.shards == 1 && request.torch != "2.6";
  if (copies && asked) rules.divisor_between = static_cast<float>(factor);
  if (overflows) {
    DivideAroundSum(factor, rules);
  } else if (request.force_sum_reduction) {
    rules.divisor_after = static_cast<float>(factor);
  } else if (factor == rules.shards) {
    rules.is_mean_of_shards = true;
  } else if (!copies) {
    rules.factor = static_cast<float>(1 / factor);
  }
  return rules;
}

void ReducedGradient::Add(int rank, Floats gradient, DType made) {
  if (rules_.adds_to_reduced && ranks_[rank].empty() && !gradient_.empty()) {
    ranks_[rank] = Accumulate(gradient_, std::move(gradient), rules_.original);
    return;
  }
  const DType dtype = rules_.adds_as_made ? made : rules_.reduce;
  if (ranks_[rank].empty()) Round(gradient, dtype);
  ranks_[rank] = Accumulate(std::move(ranks_[rank]), std::move(gradient), dtype);
}

void ReducedGradient::EndMicroBatch(int micro_batch) {
  const bool is_last = micro_batch + 1 == rules_.micro_batches;
  if (rules_.reduce_in_last_only && !is_last) return;
  for (Floats& rank : ranks_) {
    Round(rank, rules_.reduce);
    Divide(rank, rules_.divisor_before, rules_.reduce);
  }
  for (int r = 0; r < rules_.replicas; ++r) {
    Floats sum = SumOfShards(r);
    Divide(sum, rules_.divisor_between, rules_.reduce);
    partial_[r] = Accumulate(std::move(partial_[r]), std::move(sum), rules_.reduce);
  }
  for (Floats& rank : ranks_) rank.clear();
  if (rules_.all_reduce_in_last_only && rules_.replicas > 1 && !is_last) return;
  Floats sum = SumOfReplicas(partial_);
  for (Floats& replica : partial_) replica.clear();
  Divide(sum, rules_.divisor_after, rules_.reduce);
  Round(sum, rules_.original);
  if (rules_.adds_to_reduced) gradient_.clear();
  gradient_ = Accumulate(std::move(gradient_), std::move(sum), rules_.original);
}

std::vector<std::byte> ReducedGradient::Take() {
  std::vector<std::byte> stored(gradient_.size() * SizeOf(rules_.original));
  exec::ConvertElements(gradient_.data(), DType::kFp32, stored.data(), rules_.original,
                        static_cast<int64_t>(gradient_.size()));
  gradient_.clear();
  return stored;
}

ReducedGradient::Floats ReducedGradient::SumOfShards(int replica) const {
  Floats sum;
  for (int s = 0; s < rules_.shards; ++s) {
    const Floats& rank = ranks_[replica * rules_.shards + s];
    if (s == 0) sum.assign(rank.size(), 0);
    for (size_t i = 0; i < rank.size(); ++i) {
      const float part = rank[i] * rules_.factor;
      sum[i] = s == 0 ? part : sum[i] + part;
    }
  }
  if (rules_.is_mean_of_shards) {
    for (float& x : sum) x /= static_cast<float>(rules_.shards);
  }
  Round(sum, rules_.reduce);
  return sum;
}

ReducedGradient::Floats ReducedGradient::SumOfReplicas(const std::vector<Floats>& replicas) const {
  Floats sum = replicas[0];
  for (size_t r = 1; r < replicas.size(); ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += replicas[r][i];
  }
  if (rules_.is_mean_of_replicas) {
    for (float& x : sum) x /= static_cast<float>(replicas.size());
  }
  Round(sum, rules_.reduce);
  return sum;
}

}  // namespace foreshard
