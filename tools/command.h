// The subcommands of `foreshard`. Each Add function declares its flags on `app` and returns what
// runs when the user asks for it; results go to stdout, everything else to stderr.
#pragma once

#include <functional>

#include "proto/base/status.h"
#include "tools/exit_code.h"

namespace CLI {
class App;
}

namespace foreshard {

struct Command {
  CLI::App* app = nullptr;  // the subcommand, owned by the application
  std::function<StatusOr<ExitCode>()> run;
};

Command AddPredict(CLI::App& app);
Command AddPlan(CLI::App& app);
Command AddCheck(CLI::App& app);
Command AddSim(CLI::App& app);
Command AddRun(CLI::App& app);
Command AddExplain(CLI::App& app);
Command AddCompare(CLI::App& app);
Command AddInspect(CLI::App& app);
Command AddList(CLI::App& app);

}  // namespace foreshard
