// What the host does in a run, without times: all that memory depends on.
#pragma once

#include <span>

#include "proto/run/listener.h"
#include "proto/run/program.h"

namespace foreshard::run {

// Tells the listener of the host's part of the given programs, one after the other, at time 0.
void WalkHost(const Program& program, std::span<const ProgramId> steps, Listener& listener);

// All programs up to the steady one, once each: memory repeats from there on.
std::vector<ProgramId> ProgramsOnce(const Program& program);

}  // namespace foreshard::run
