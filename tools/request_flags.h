// The flags that change a request: what each takes, what it means, and what is wrong with a value.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/plan.h"

namespace CLI {
class App;
}

namespace foreshard {

// Changes of a request, in the order of `--help`. They are applied to the defaults or to what a
// decisions file says.
using RequestEdits = std::vector<std::function<void(PlanRequest&)>>;

// Adds every flag that changes one field and never repeats to make a table.
void AddRequestFlags(CLI::App& app, RequestEdits* edits);

// "true", "false" or a number of ranks as Reshard; what is wrong with others.
std::string SetReshard(std::optional<Reshard>& reshard, const std::string& text);

// Names that flags accept, for `foreshard list`.
const std::vector<std::string>& KernelProfiles();

}  // namespace foreshard
