// What textbooks say about a sharded step, and what separates it from this plan, term by term.
#pragma once

#include <cstdint>

namespace foreshard::pb {
class Plan;
class Report;
}  // namespace foreshard::pb

namespace foreshard {

// Fills report.textbook from the plan alone. Closed forms, in bytes, for P parameters on N ranks of
// a shard group, rounded down:
//   16 P       replicated: 16-bit weights and gradients, 32-bit weights and both moments of Adam
//   16 P / N   the same, sharded
//   2 U (1 + ahead)  gathered in 16 bits: the unit in use, and one ahead of it
//   3 x 2 P    payload of two gathers and a reduction; 2 x 2 P for the all-reduce of replicas
//   x (N-1)/N  what a rank sends of either in a ring
// U is the largest unit among those that are freed after forward and gathered again in backward;
// the largest of all when none is. `ahead` is 1, or 0 when there is only one unit or one rank.
//
// `difference` goes from 16 P / N + 2 U (1 + ahead) to `managed_peak_bytes`, the highest moment of
// the program `steady` in what the sharding itself holds. It sums to the byte, and each term is
// either what buffers alive at that moment exceed their share of the textbook's or, for what the
// textbook leaves out, their size. REQUIRES: CheckPlan(plan) is OK.
void FillTextbook(const pb::Plan& plan, pb::Report& report);

}  // namespace foreshard
