// The units that FSDP1 makes, each with one flat parameter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/lower/forward.h"
#include "planner/wrap.h"

namespace foreshard {

// As MakeUnits, where every call is on one module, their order does not matter and the model itself
// is always a unit. Parameters of a unit stand in named_parameters order. Refuses what PyTorch
// cannot make flat: with use_orig_params off, frozen and trained parameters in one unit.
StatusOr<std::vector<Unit>> MakeFlatUnits(const ModelGraph& graph, std::vector<WrapRequest> calls,
                                          bool use_orig_params);

// kInvalidArgument for frozen and trained parameters in one flat parameter.
Status CheckUniform(const ModelGraph& graph, const std::string& unit,
                    std::span<const int> parameters);

// A reentrant checkpoint runs a backward of its own, in which a flat parameter that is used there
// is reduced and freed: kInvalidArgument for one that backward needs again afterwards.
Status CheckReentrant(const ModelGraph& graph, const std::vector<Unit>& units,
                      const ForwardChoices& forward);

// What becomes of each unit after forward.
std::vector<UnitRules> FlatUnitRules(const std::vector<Unit>& units, pb::Strategy strategy);

}  // namespace foreshard
