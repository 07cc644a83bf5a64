// What the process answers to its caller. Documented in --help; a number is never reused.
#pragma once

#include <string>

#include "proto/base/status.h"

namespace foreshard {

enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kBadInput = 3,
  kInvalidPlan = 4,
  kDoesNotFit = 5,
  kRegression = 6,
  kEnvironment = 7,
  kInterrupted = 130,  // what a shell makes of SIGINT
};

// The exit code of a command that failed with `code`.
ExitCode ExitCodeFor(StatusCode code);

// The table of all codes, for --help.
std::string ExitCodeHelp();

}  // namespace foreshard
