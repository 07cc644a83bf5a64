// The textbook's model: seven billion parameters in equal blocks.
#pragma once

#include <cstdint>
#include <string>

#include "planner/families/module_builder.h"
#include "planner/plan.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "tests/planner/plan_helpers.h"

namespace foreshard {

// 32 blocks of a norm and two Linear, 7,000 -> 15,624 -> 7,000, and nothing else.
// 2 x 7,000 x 15,624 + 2 x 7,000 = 218,750,000, so that all are seven billion, and eight ranks
// share each tensor evenly.
inline pb::Model EqualBlocks() {
  constexpr int64_t kWidth = 7000;
  constexpr int64_t kHidden = 15624;
  pb::Model model;
  model.set_name("equal-blocks");
  model.set_block_class("Block");
  pb::ModelInput& input = *model.add_inputs();
  input.set_name("x");
  input.set_kind(pb::ModelInput::FLOATS);
  for (const int64_t size : {int64_t{1}, int64_t{1}, kWidth}) input.add_shape(size);
  input.set_requires_grad(true);
  pb::Module& root = *model.mutable_root();
  MakeComposite(root, "Model", {"x"});
  pb::Module& layers = AddChild(root, "layers", "ModuleList");
  for (int i = 0; i < 32; ++i) {
    const std::string name = std::to_string(i);
    pb::Module& block = AddComposite(layers, name, "Block", {"x"});
    pb::Module& norm = AddChild(block, "norm", "LayerNorm");
    AddParameter(norm, "weight", {kWidth});
    AddParameter(norm, "bias", {kWidth});
    norm.set_eps(1e-5);
    AddLinear(block, "up", kWidth, kHidden, /*bias=*/false);
    AddLinear(block, "down", kHidden, kWidth, /*bias=*/false);
    AddCall(block, "norm", {"x"}, {"h"});
    AddCall(block, "up", {"h"}, {"h"});
    AddCall(block, "down", {"h"}, {"h"});
    SetOutput(block, {"h"});
    AddCall(root, "layers." + name, {"x"}, {"x"});
  }
  SetOutput(root, {"x"});
  return model;
}

inline PlanRequest EqualBlocksRequest(const std::string& wrap) {
  PlanRequest request;
  request.world_size = 8;
  request.seq = 1;
  request.wrap = wrap;
  request.loss = "sum_fp32";
  return request;
}

inline pb::Plan SevenBillion(const std::string& wrap) {
  return PlanOf(EqualBlocks(), EqualBlocksRequest(wrap));
}

}  // namespace foreshard
