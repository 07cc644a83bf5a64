// The small world: every plan of a few units and ranks, as the tests that want them all go through
// it. Per layout (how units are cut, blocks, ranks): the default choices, every choice moved from
// its default, every pair of them; and seeded random combinations of everything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "proto/base/status.h"
#include "proto/plan.pb.h"

namespace foreshard {

struct SmallCase {
  std::string name;  // "every:2, 3 blocks, 4 ranks: torch=2.14 loss=sum_fp32"
  int blocks = 1;
  bool tied = false;    // the head's weight is the embedding's
  bool gpt2 = false;    // with its dropouts, instead of a Llama
  bool frozen = false;  // the embeddings
  // How many blocks are gathered ahead of each, explicitly; 0 = as the library does by itself.
  int forward_prefetch = 0;
  int backward_prefetch = 0;
  PlanRequest request;
};

// Whose choices there are.
enum class Library { kFsdp2, kFsdp1, kDdp };

std::string Name(Library library);  // "Fsdp2"

// Where a layout has more than `most_per_layout` cases, a seeded sample of its pairs is left.
std::vector<SmallCase> SmallLayouts(size_t most_per_layout, Library library = Library::kFsdp2);
std::vector<SmallCase> RandomSmallCases(size_t count, uint64_t seed,
                                        Library library = Library::kFsdp2);

// kInvalidArgument where the planner refuses the combination.
StatusOr<pb::Plan> PlanOfCase(const SmallCase& small);

}  // namespace foreshard
