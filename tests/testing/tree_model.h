// Small models for tests of the planner: a decoder of residual blocks, as the golden cases have it.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/model.pb.h"

namespace foreshard {

struct TreeOptions {
  int blocks = 2;
  int64_t dim = 8;
  int64_t vocab = 10;
  bool tie = false;  // the head's weight is the embedding's
};

// emb; layers of norm, w1 (dim -> 4 dim), relu, w2 (4 dim -> dim) and a residual; norm; head. No
// linear has a bias, every norm has one. Values die at their last use. Parameters in order:
//   emb.weight, layers.I.{norm.weight, norm.bias, w1.weight, w2.weight}, norm.{weight, bias},
//   head.weight
pb::Model TreeModel(const TreeOptions& options);

// A model of nothing but its own parameters: the sum of `first` [2, 6] and `second` [5].
pb::Model TwoParameterModel();

// The module at a path. REQUIRES: there is one.
pb::Module& FindModule(pb::Model& model, std::string_view path);

// Freezes every parameter of the module and of those below it.
void Freeze(pb::Module& module);

}  // namespace foreshard
