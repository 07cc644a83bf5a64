// What a run was made on: machine, system, build.
#pragma once

#include <cstdint>

#include "proto/report.pb.h"

namespace foreshard::exec {

// Of the host; what the run itself chose stays empty.
pb::Environment DescribeHost();

// Memory that a new process could still take: what the system calls available, less than that where
// the process's control group allows less. 0 = unknown.
int64_t AvailableMemory();

}  // namespace foreshard::exec
