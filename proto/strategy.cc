#include "proto/strategy.h"

#include <algorithm>
#include <cctype>

namespace foreshard {

std::string StrategyName(pb::Strategy strategy) {
  if (strategy == pb::FULLY_SHARD) return "fsdp2";
  std::string name = pb::Strategy_Name(strategy);
  for (char& letter : name) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return name;
}

const std::vector<std::string>& StrategyNames() {
  static const auto& names = *[] {
    auto* all = new std::vector<std::string>;
    for (int s = 0; s <= pb::Strategy_MAX; ++s) {
      all->push_back(StrategyName(static_cast<pb::Strategy>(s)));
    }
    return all;
  }();
  return names;
}

std::optional<pb::Strategy> ParseStrategy(std::string_view name) {
  if (name == "zero2") return pb::SHARD_GRAD_OP;
  if (name == "zero3") return pb::FULL_SHARD;
  const auto found = std::ranges::find(StrategyNames(), name);
  if (found == StrategyNames().end()) return std::nullopt;
  return static_cast<pb::Strategy>(found - StrategyNames().begin());
}

bool IsFsdp1(pb::Strategy strategy) {
  return strategy >= pb::FULL_SHARD && strategy <= pb::HYBRID_SHARD_ZERO2;
}

bool IsHybrid(pb::Strategy strategy) {
  return strategy == pb::HYBRID_SHARD || strategy == pb::HYBRID_SHARD_ZERO2;
}

bool TakesReplicas(pb::Strategy strategy) {
  return strategy == pb::FULLY_SHARD || IsHybrid(strategy);
}

bool ReshardsAfterForward(pb::Strategy strategy) {
  return strategy == pb::FULL_SHARD || strategy == pb::HYBRID_SHARD;
}

bool IsReplicated(pb::Strategy strategy) { return strategy == pb::DDP || strategy == pb::ZERO1; }

}  // namespace foreshard
