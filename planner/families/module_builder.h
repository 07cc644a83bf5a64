// Small helpers to write module trees of proto/model.proto down as code.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "proto/model.pb.h"

namespace foreshard {

using ValueNames = std::initializer_list<std::string_view>;

// A module with its own parameters only. References stay valid while their parent gets no more
// children.
pb::Module& AddChild(pb::Module& parent, std::string_view name, std::string_view class_name);

// A composite whose names live as local variables of a Python function do.
pb::Module& AddComposite(pb::Module& parent, std::string_view name, std::string_view class_name,
                         ValueNames inputs);
void MakeComposite(pb::Module& module, std::string_view class_name, ValueNames inputs);

void AddParameter(pb::Module& module, std::string_view name, std::initializer_list<int64_t> shape);
void AddLinear(pb::Module& parent, std::string_view name, int64_t in, int64_t out, bool bias);
// A linear layer whose weight is stored [in, out], always with a bias.
void AddConv1d(pb::Module& parent, std::string_view name, int64_t in, int64_t out);
void AddLayerNorm(pb::Module& parent, std::string_view name, int64_t width, double eps);
void AddEmbedding(pb::Module& parent, std::string_view name, int64_t rows, int64_t width);

pb::Statement& AddStatement(pb::Module& module, pb::Statement::Op op, ValueNames in,
                            ValueNames out);
void AddCall(pb::Module& module, std::string_view child, ValueNames in, ValueNames out);
// `value` is dropped out in place of itself; nothing when p is 0.
void AddDropout(pb::Module& module, std::string_view value, double p);
void SetOutput(pb::Module& module, ValueNames output);

// A model that maps token ids to logits; its root is empty.
pb::Model CausalLanguageModel(std::string_view family, std::string_view block_class, int64_t vocab);
// The root's forward: `decoder`, then a head without bias, whose weight is `tie` unless that is "".
void AddHead(pb::Module& root, std::string_view decoder, int64_t hidden, int64_t vocab,
             std::string_view tie);

}  // namespace foreshard
