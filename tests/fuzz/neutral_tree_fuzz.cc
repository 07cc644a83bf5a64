// Any bytes as a neutral module tree; what is accepted is lowered.
#include "planner/families/neutral_tree.h"
#include "tests/fuzz/model_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  const StatusOr<pb::Model> model = ModelFromNeutralTree(fuzz::AsText(data, size), "fuzz");
  if (model.ok()) fuzz::LowerAndCheck(*model);
  return 0;
}
