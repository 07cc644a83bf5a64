// Runs the foreshard binary as a user would.
#pragma once

#include <string>
#include <vector>

namespace foreshard {

struct ProcessResult {
  int exit_code = -1;  // -1 when a signal ended it
  std::string out;
  std::string err;
};

// Runs `foreshard args...` and waits. Standard input is empty.
ProcessResult RunForeshard(const std::vector<std::string>& args);

}  // namespace foreshard
