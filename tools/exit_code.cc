#include "tools/exit_code.h"

namespace foreshard {

ExitCode ExitCodeFor(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return ExitCode::kOk;
    case StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case StatusCode::kInvalidInput:
    case StatusCode::kNotFound:
      return ExitCode::kBadInput;
    case StatusCode::kInvalidPlan:
      return ExitCode::kInvalidPlan;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
      return ExitCode::kEnvironment;
    case StatusCode::kInternal:
      return ExitCode::kInternal;
  }
  return ExitCode::kInternal;
}

std::string ExitCodeHelp() {
  return "Exit codes:\n"
         "  0    done; for predict and sim: fits\n"
         "  1    internal error\n"
         "  2    usage: a flag is wrong, or asks for what is impossible\n"
         "  3    bad input file, or no such file or built-in name\n"
         "  4    invalid plan\n"
         "  5    does not fit\n"
         "  6    regression beyond a tolerance\n"
         "  7    environment: a device, library or disk is missing or fails\n"
         "  130  interrupted\n";
}

}  // namespace foreshard
