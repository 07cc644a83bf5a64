// Schema enumerators as people read them.
#pragma once

#include <string>

#include "proto/plan.pb.h"

namespace foreshard {

std::string CategoryName(pb::Category category);  // "sharded params", ...
std::string PhaseName(pb::Phase phase);           // "forward", "zero grad", ...

}  // namespace foreshard
