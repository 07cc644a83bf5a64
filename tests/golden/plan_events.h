// The events of a plan: its programs, walked as a host issues them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "proto/plan.pb.h"
#include "tests/golden/golden_record.h"

namespace foreshard::golden {

// Every op of a program with the micro-batch it is issued in.
void ForEachOp(const pb::Plan& plan, const pb::Program& program,
               const std::function<void(const pb::Op&, int micro_batch)>& visit);

// The program that an iteration runs.
const pb::Program& ProgramOf(const pb::Plan& plan, int iteration);

// Of three iterations.
std::vector<std::vector<Event>> EventsOf(const pb::Plan& plan, const PlanRecordOptions& options);

// As the traces call it: "fwd", "bwd", "clip", "opt", "zero".
std::string PhaseText(pb::Phase phase);
std::string DTypeText(pb::DType dtype);
std::string CategoryText(pb::Category category);

}  // namespace foreshard::golden
