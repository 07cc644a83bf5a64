// Any bytes as a Hugging Face config.json.
#include "planner/families/family.h"
#include "proto/model.pb.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace foreshard;
  const StatusOr<pb::Model> model = ModelFromHfConfig(fuzz::AsText(data, size), "fuzz");
  if (model.ok()) {
    fuzz::Require(model->has_root(), "a model that was read has a root");
  } else {
    fuzz::Require(model.status().code() == StatusCode::kInvalidInput, "refused as input");
    fuzz::Require(!model.status().message().empty(), "refused with a reason");
  }
  return 0;
}
