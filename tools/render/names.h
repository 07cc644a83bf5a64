// Schema enumerators as people read them.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace foreshard {

std::string CategoryName(pb::Category category);  // "sharded params", ...
std::string PhaseName(pb::Phase phase);           // "forward", "zero grad", ...
std::string PhaseName(pb::Phase phase,
                      int micro_batch);  // "forward", of later micro-batches "forward 1"
// Why a unit is gathered: "forward", "backward", "prefetch in backward", ...
std::string ReasonName(pb::AllGather::Reason reason);
std::string DTypeName(pb::DType dtype);                                     // "fp32", ...
std::string LossName(pb::LossKind loss);                                    // as --loss takes it
std::string OptimizerName(pb::OptimizerKind kind, pb::OptimizerImpl impl);  // "adamw (fused)"

}  // namespace foreshard
