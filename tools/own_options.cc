#include "tools/own_options.h"

#include "proto/strategy.h"
#include "tools/plan_flags.h"

namespace foreshard {

void KeepOwnChoices(PlanChoice& choice) {
  const pb::Strategy strategy = ParseStrategy(choice.strategy).value();
  if (strategy != pb::FULLY_SHARD) choice.reshard_after_forward.clear();
  if (!TakesReplicas(strategy)) choice.replicate = 0;
  if (IsReplicated(strategy)) choice.wrap.clear();
}

}  // namespace foreshard
