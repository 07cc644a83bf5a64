// Strategies by the names that users type.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/plan.pb.h"

namespace foreshard {

// "fsdp2", "full_shard", ..., "zero1": as FullyShardedDataParallel's ShardingStrategy has them.
std::string StrategyName(pb::Strategy strategy);

// All of them, in the order of the message.
const std::vector<std::string>& StrategyNames();

// By its name, or by another that people use: "zero2" for "shard_grad_op", "zero3" for
// "full_shard".
std::optional<pb::Strategy> ParseStrategy(std::string_view name);

// Those of FullyShardedDataParallel.
bool IsFsdp1(pb::Strategy strategy);
// Of them, those with replicas.
bool IsHybrid(pb::Strategy strategy);
// Whether shard groups may have replicas, as the request says how many.
bool TakesReplicas(pb::Strategy strategy);
// Of FullyShardedDataParallel's, those that free gathered parameters after a unit's forward, but
// for the root's.
bool ReshardsAfterForward(pb::Strategy strategy);
// Whether every rank has all parameters: there are no units but the model.
bool IsReplicated(pb::Strategy strategy);

}  // namespace foreshard
